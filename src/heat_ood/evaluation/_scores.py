"""Scores of samples as a table in a file, Parquet or CSV, whole or a shard at a time."""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import FormatError, InputError
from ..files import Format, replacing, write
from ._sheets import sheet_cell

__all__ = [
    "RECORD",
    "TABLES",
    "check_ending",
    "is_scores",
    "merge_scores",
    "reusable",
    "rows_of",
    "write_shard",
    "write_table",
]

TABLES = (".parquet", ".csv")
"""How files of scores end."""
BLOCK = 4096
"""Rows that are made at a time."""
GROUP = 65_536
"""Rows of a group of a Parquet file."""
SHARD = Format("heat-ood scores", 1)
RECORD = re.compile(r"shard-([0-9]{5,9})\.json")
AGAIN = "Score this shard again."
PYARROW = "Reading and writing Parquet needs pyarrow: pip install heat-ood[parquet]"


def rows_of(columns: Mapping[str, Any], which: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Some samples as rows, made as they are asked for: a million of them take more memory than all else."""
    for start in range(0, len(which), BLOCK):
        some = which[start : start + BLOCK]
        block = [taken(column, some) for column in columns.values()]
        yield from (dict(zip(columns, values, strict=True)) for values in zip(*block, strict=True))


def taken(column: Any, which: Sequence[int]) -> list[Any]:
    """Some values of a column, as Python has them."""
    return column[list(which)].tolist() if hasattr(column, "tolist") else [column[i] for i in which]


def write_table(file: Path, columns: Mapping[str, Any]) -> None:
    """Write columns of one length by the file's ending; it is replaced in one step.

    Args:
        file: ``.parquet`` (needs pyarrow) or ``.csv``.
        columns: tensors, arrays or sequences by name.
    """
    check_ending(file)
    if file.suffix.lower() == ".parquet":
        write_parquet(file, columns)
    else:
        write_csv(file, list(columns), rows_of(columns, range(len(next(iter(columns.values()))))))


def check_ending(file: Path) -> None:
    if file.suffix.lower() not in TABLES:
        raise InputError(f"Scores are written to files that end in {' or '.join(TABLES)}, not to {file.name}.")


def write_csv(file: Path, header: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    with (
        replacing(file) as part,
        open(part, "w", newline="", encoding="utf-8", errors="backslashreplace") as out,
    ):
        writer = csv.DictWriter(out, header, lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: sheet_cell(value) for name, value in row.items()} for row in rows)


def write_parquet(file: Path, columns: Mapping[str, Any]) -> None:
    arrow, parquet = pyarrow()
    size = len(next(iter(columns.values())))
    kinds: Any = None
    with replacing(file) as part:
        writer: Any = None
        try:
            for start in range(0, max(size, 1), GROUP):
                which = range(start, min(start + GROUP, size))
                table = arrow.table({name: array_of(arrow, column, which) for name, column in columns.items()})
                if writer is None:
                    kinds = table.schema
                    writer = parquet.ParquetWriter(part, kinds)
                writer.write_table(table.cast(kinds))
        finally:
            if writer is not None:
                writer.close()


def array_of(arrow: Any, column: Any, which: range) -> Any:
    """Some values of a column with their own type: float32 stays so."""
    if hasattr(column, "numpy") or hasattr(column, "dtype"):
        some = column[which.start : which.stop]
        return arrow.array(some.numpy() if hasattr(some, "numpy") else some)
    values = [column[i] for i in which]
    if values and isinstance(values[0], str):
        return arrow.array([text.encode("utf-8", "backslashreplace").decode() for text in values], arrow.string())
    return arrow.array(values, arrow.int64()) if isinstance(column, range) else arrow.array(values)


def pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise InputError(PYARROW) from None
    return pyarrow, parquet


# Shards


def write_shard(folder: Path, name: str, ending: str, columns: Mapping[str, Any], about: Mapping[str, Any]) -> Path:
    """Write the scores of one shard, and its record last: it says that the shard is finished, and of what it is.

    Args:
        folder: of the scores.
        name: of the shard, ``shard-00003``.
        ending: ``.parquet`` or ``.csv``.
        columns: as for :func:`write_table`.
        about: what must be the same in all shards (``same``), and which shard it is, ``[number, of]`` (``shard``).
    """
    file = folder / f"{name}{ending}"
    write_table(file, columns)
    size = len(next(iter(columns.values())))
    record = {"file": file.name, "samples": size, "sha256": sha256_of(file), "columns": list(columns), **about}
    write(folder / f"{name}.json", json.dumps(SHARD.stamp(record), indent=1) + "\n", durable=True)
    return file


def reusable(folder: Path, name: str, ending: str, about: Mapping[str, Any]) -> dict[str, Any] | None:
    """The record of a shard that is finished already, as it would be now; None where it is to be made."""
    path = folder / f"{name}.json"
    if not path.exists():
        return None
    record = read_record(path)
    known = {key: record.get(key) for key in about}
    file = folder / str(record["file"])
    if known != json.loads(json.dumps(about)) or file.suffix != ending or not file.is_file():
        return None
    return record if sha256_of(file) == record["sha256"] else None


def is_scores(folder: Path) -> bool:
    """Whether a folder holds the scores of shards."""
    return folder.is_dir() and bool(records_in(folder))


def records_in(folder: Path) -> dict[int, Path]:
    found = ((RECORD.fullmatch(file.name), file) for file in sorted(folder.iterdir()))
    return {int(match[1]): file for match, file in found if match is not None and scores(file)}


def scores(file: Path) -> bool:
    """Whether a record is one of scores; the folders of features have others of the same name."""
    try:
        with open(file, "rb") as stream:
            return SHARD.name.encode() in stream.read(64)
    except OSError:
        return False


def read_record(path: Path) -> dict[str, Any]:
    record = SHARD.read(path, "Pass a folder that heat-ood score --shard wrote to.", AGAIN)
    shard, file = record.get("shard"), record.get("file")
    sound = (
        isinstance(shard, list)
        and len(shard) == 2
        and all(isinstance(n, int) and not isinstance(n, bool) for n in shard)
        and 0 <= shard[0] < shard[1] <= 10**6
        and isinstance(file, str)
        and file in [path.stem + ending for ending in TABLES]
        and isinstance(record.get("samples"), int)
    )
    if not sound:
        raise FormatError(f"{path} is damaged. {AGAIN}")
    return record


def merge_scores(folder: Path) -> tuple[Path, dict[str, Any]]:
    """One table of the scores of all shards, ``scores.parquet`` or ``scores.csv``, in the order of the samples.

    All shards must be there, be whole, and be scored by the same detector; the shards stay.

    Returns:
        The file, and what all shards have in common, with the sums of their samples and of those judged OOD.
    """
    records = {number: read_record(path) for number, path in records_in(folder).items()}
    if not records:
        raise InputError(f"There are no scores of shards in {folder}. Pass what heat-ood score --shard wrote to.")
    first = records[min(records)]
    of = first["shard"][1]
    for number, record in records.items():
        for what, mine, its in (
            ("number", number, record["shard"][0]),
            ("number of shards", of, record["shard"][1]),
            ("detector, rate or samples", first.get("same"), record.get("same")),
            ("columns", first.get("columns"), record.get("columns")),
            ("format", Path(first["file"]).suffix, Path(record["file"]).suffix),
        ):
            if mine != its:
                raise InputError(
                    f"shard-{min(records):05d} and shard-{number:05d} in {folder} do not go together: another {what}. "
                    "Score all shards with the same command, and other ones into another folder."
                )
    if missing := [i for i in range(of) if i not in records]:
        more = f" and {len(missing) - 1:,} more" if missing[1:] else ""
        raise InputError(
            f"{folder} is not complete: shard-{missing[0]:05d}{more} of {of:,} is missing. Run heat-ood score … "
            f"--shard {missing[0]}/{of}, and merge when it is done."
        )
    files = []
    for number in range(of):
        file = folder / records[number]["file"]
        if not file.is_file() or sha256_of(file) != records[number].get("sha256"):
            raise FormatError(f"{file} is missing or damaged: its checksum does not match. {AGAIN}")
        files.append(file)
    out = folder / f"scores{files[0].suffix}"
    starts = [sum(records[i]["samples"] for i in range(number)) for number in range(of)]
    (join_parquet if out.suffix == ".parquet" else join_csv)(out, files, starts)
    flagged = [record.get("flagged") for record in records.values()]
    known = [count for count in flagged if isinstance(count, int)]
    total = {"samples": sum(r["samples"] for r in records.values()), "flagged": sum(known) if known else None}
    return out, {**(first.get("same") or {}), **total, "shards": of}


def join_parquet(out: Path, files: Sequence[Path], starts: Sequence[int]) -> None:
    arrow, parquet = pyarrow()
    schema = parquet.read_schema(files[0])
    with replacing(out) as part, parquet.ParquetWriter(part, schema) as writer:
        for file, start in zip(files, starts, strict=True):
            with parquet.ParquetFile(file) as found:
                row = start
                for group in range(found.num_row_groups):
                    table = found.read_row_group(group).cast(schema)
                    numbers = arrow.array(range(row, row + len(table)), arrow.int64())
                    writer.write_table(table.set_column(0, "sample", numbers))
                    row += len(table)


def join_csv(out: Path, files: Sequence[Path], starts: Sequence[int]) -> None:
    with replacing(out) as part, open(part, "w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        for number, (file, start) in enumerate(zip(files, starts, strict=True)):
            with open(file, newline="", encoding="utf-8") as source:
                rows = csv.reader(source)
                header = next(rows)
                if not number:
                    writer.writerow(header)
                writer.writerows([start + i, *row[1:]] for i, row in enumerate(rows))


def sha256_of(file: Path) -> str:
    with open(file, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
