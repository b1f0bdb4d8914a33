"""Images by a list of their paths: a text file with a path a line, or a Parquet file with a column of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import InputError
from ._cutting import Cut, chosen_rows
from ._regular import opened

__all__ = ["LISTS", "Listed", "read_list"]

LISTS = (".txt", ".lst", ".parquet")
"""How files end that list images."""
LONGEST = 1 << 16
"""Bytes of a line."""
PYARROW = "Reading and writing Parquet needs pyarrow: pip install heat-ood[parquet]"


class Listed(NamedTuple):
    """Some of the images of a list: their paths and labels, the names of the classes, and which part of all it is."""

    names: list[str]
    targets: np.ndarray[Any, Any] | None
    classes: list[str] | None
    place: tuple[int, int] | None


def read_list(file: Path, labels: bool, limit: int | None, part: Cut | None) -> Listed:
    """The paths of a list, and the labels that stand beside them.

    A line of a text file is a path or, after a tab, also a class number. A Parquet file has a column ``path`` and
    perhaps ``label`` (class numbers) or ``class`` (names, numbered in their order). Of a large list only the part that
    is asked for stays in memory.
    """
    try:
        return (read_parquet if file.suffix.lower() == ".parquet" else read_text)(file, labels, limit, part)
    except InputError as error:
        raise InputError(f"The list {file} cannot be used. ", *error.parts) from error


def read_text(file: Path, labels: bool, limit: int | None, part: Cut | None) -> Listed:
    rows, place = chosen_rows(sum(1 for _ in lines_of(file)), limit, part)
    wanted = iter(rows)
    names, numbers, row = list[str](), list[str](), next(wanted, None)
    for number, line in enumerate(lines_of(file)):
        if number == row:
            name, tab, label = line.partition("\t")
            names.append(name)
            if tab:
                numbers.append(label.strip())
            row = next(wanted, None)
    if not labels or not numbers:
        return Listed(names, None, None, place)
    if len(numbers) != len(names) or not all(text.isdecimal() and len(text) < 10 for text in numbers):
        raise InputError("Its labels are not whole numbers behind a tab, one a line. Mend them, or leave all out.")
    return Listed(names, np.array([int(text) for text in numbers], dtype=np.int64), None, place)


def lines_of(file: Path) -> Iterator[str]:
    """The lines that hold something, one at a time."""
    with opened(file) as stream:
        while line := stream.readline(LONGEST):
            if len(line) == LONGEST:
                raise InputError("It has a line that is too long for a path. Write one path a line.")
            if b"\0" in line:
                raise InputError("It is no text. Write one path a line.")
            text = line.decode("utf-8", "surrogateescape").rstrip("\r\n")
            if text.strip():
                yield text


def read_parquet(file: Path, labels: bool, limit: int | None, part: Cut | None) -> Listed:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise InputError(PYARROW) from None
    try:
        with opened(file) as stream:
            table = parquet.ParquetFile(stream)
            known = set(table.schema_arrow.names)
            if "path" not in known:
                raise InputError(f"It has no column 'path', but {', '.join(sorted(known))[:200]}.")
            rows, place = chosen_rows(table.metadata.num_rows, limit, part)
            beside = next((name for name in ("label", "class") if labels and name in known), None)
            names = list(map(str, column_of(table, "path", rows)))
            if beside is None:
                return Listed(names, None, None, place)
            if beside == "label":
                return Listed(names, class_numbers(column_of(table, beside, rows)), None, place)
            classes = sorted(set(map(str, column_of(table, beside, range(table.metadata.num_rows)))))
            number = {name: i for i, name in enumerate(classes)}
            found = [number[str(name)] for name in column_of(table, beside, rows)]
            return Listed(names, np.array(found, dtype=np.int64), classes, place)
    except (ArrowException, OSError) as error:
        raise InputError(f"It is no Parquet file, or a damaged one ({str(error).splitlines()[0]}).") from error


def column_of(table: Any, name: str, rows: Sequence[int]) -> Iterator[Any]:
    """Some values of a column, a row group in memory at a time."""
    wanted, row = iter(rows), 0
    following = next(wanted, None)
    for group in range(table.metadata.num_row_groups):
        end = row + table.metadata.row_group(group).num_rows
        if following is not None and following < end:
            values = table.read_row_group(group, columns=[name]).column(0)
            while following is not None and following < end:
                value = values[following - row].as_py()
                if value is None:
                    raise InputError(f"Its column {name!r} has no value in row {following:,}.")
                yield value
                following = next(wanted, None)
        row = end


def class_numbers(values: Iterator[Any]) -> np.ndarray[Any, Any]:
    found = list(values)
    if not all(isinstance(value, int) and 0 <= value < 2**31 for value in found):
        bad = next(islice((v for v in found if not isinstance(v, int) or not 0 <= v < 2**31), 1))
        raise InputError(f"Its column 'label' has {bad!r:.40}, which is no class number. Put names into 'class'.")
    return np.array(found, dtype=np.int64)
