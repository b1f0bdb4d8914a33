"""Features as they are uploaded, JSON or ``.npy``: nothing of them is evaluated, unpickled or believed."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from ._refusals import RefusedError
from ._samples import Floats

__all__ = ["checked", "from_json", "from_npy"]

MAGIC = re.compile(rb"\x93NUMPY([\x01-\x03])\x00")
HEADER = re.compile(
    r"\{ *'descr': *'(?P<dtype>[^']{1,20})', *'fortran_order': *(?P<fortran>True|False), *"
    r"'shape': *\((?P<shape>(?:\d{1,18}, *)*(?:\d{1,18})?)\),? *\}[ \n]*",
    re.ASCII,
)
DTYPE = re.compile(r"[<>=]?f[248]", re.ASCII)
LONGEST = 10_000
"""Bytes of the header of an array."""
EXAMPLE = '{"features": {"avg": [[0.1, 0.2], [0.3, 0.4]]}}'


def wrong(cause: str, remedy: str, status: int = 422) -> RefusedError:
    return RefusedError(status, f"{cause}. {remedy}.")


def from_npy(content: bytes, column: str) -> Floats:
    """An array of floating-point numbers, (n, width); its header must promise what there is, before any is read."""
    found = MAGIC.match(content)
    if found is None:
        raise wrong(f"{column} is no .npy file", "Save it with numpy.save", 400)
    width = 2 if found[1] == b"\x01" else 4
    start = 8 + width
    end = start + int.from_bytes(content[8:start], "little")
    if not start < end <= min(len(content), start + LONGEST):
        raise wrong(f"The header of {column} is not whole", "Send the file that numpy.save wrote", 400)
    header = HEADER.fullmatch(content[start:end].decode("latin-1"))
    if header is None:
        raise wrong(f"{column} is no plain array", "Save floating-point numbers, (n, width), with numpy.save")
    if not DTYPE.fullmatch(header["dtype"]):
        raise wrong(f"{column} has the dtype {header['dtype']!r}", "Send float16, float32 or float64")
    shape = tuple(int(size) for size in header["shape"].split(",") if size.strip())
    if not 1 <= len(shape) <= 2:
        raise wrong(f"{column} has {len(shape)} dimensions", "Send (n, width)")
    dtype = np.dtype(header["dtype"])
    promised, there = math.prod(shape) * dtype.itemsize, len(content) - end
    if promised != there:
        raise wrong(f"{column} promises {promised:,} bytes and has {there:,}", "Send the whole file", 400)
    values = np.frombuffer(content, dtype, offset=end)
    rows = values.reshape(shape, order="F" if header["fortran"] == "True" else "C")
    return rows[None] if rows.ndim == 1 else rows


def from_json(body: bytes) -> dict[str, Any]:
    """The columns of ``{"features": {…}}``, as they are written there."""
    try:
        content = json.loads(body, parse_constant=refuse_constant)
    except RefusedError:
        raise
    except (ValueError, RecursionError, MemoryError) as error:
        where = f" at character {error.pos:,}" if isinstance(error, json.JSONDecodeError) else ""
        raise wrong(f"The body is no JSON that can be read{where}", f"Send {EXAMPLE}", 400) from None
    features = content.get("features") if isinstance(content, dict) else None
    if not isinstance(features, dict) or len(content) != 1:
        raise wrong('The body has no "features" alone', f"Send {EXAMPLE}")
    return features


def refuse_constant(name: str) -> NoReturn:
    raise wrong(f"{name} is no number of JSON", "Send finite numbers", 400)


def checked(columns: Mapping[str, Any], wanted: Sequence[str], most: int) -> dict[str, Floats]:
    """The columns that are judged, float32, all of as many rows, and finite."""
    if strange := [name for name in columns if name not in wanted]:
        raise wrong(f"There is no column {strange[0][:50]!r}", f"Send {', '.join(wanted)}")
    if missing := [name for name in wanted if name not in columns]:
        raise wrong(f"The column {missing[0]!r} is missing", f"Send {', '.join(wanted)}")
    found = {name: matrix(columns[name], name, most) for name in wanted}
    counts = {name: len(column) for name, column in found.items()}
    if len({*counts.values()}) > 1:
        said = ", ".join(f"{name} {count:,}" for name, count in counts.items())
        raise wrong(f"The columns have different numbers of samples: {said}", "Send a row a sample in each")
    return found


def matrix(rows: Any, name: str, most: int) -> Floats:
    """One column, float32, (n, width), with at least one sample and at most so many."""
    if not isinstance(rows, np.ndarray):
        rows = numbers(rows, name, most)
    n, width = rows.shape
    if n > most:
        raise wrong(f"{name} has {n:,} samples, and {most:,} are judged at a time", "Send fewer in a request", 413)
    if not n or not width:
        raise wrong(f"{name} is empty", "Send at least one sample")
    with np.errstate(over="ignore"):
        found = np.array(rows, dtype=np.float32, order="C")
    if not np.isfinite(found).all():
        bad = np.flatnonzero(~np.isfinite(found).all(1))
        raise wrong(f"{len(bad):,} samples of {name} are not finite, the first is sample {bad[0]}", "Leave them out")
    return found


def numbers(rows: Any, name: str, most: int) -> Floats:
    """Rows of JSON as float64; anything but rows of numbers, all of one length, is refused."""
    remedy = f"Send {EXAMPLE}"
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        raise wrong(f"{name} is no list of rows", remedy)
    if len(rows) > most:
        raise wrong(f"{name} has {len(rows):,} samples, and {most:,} are judged at a time", "Send fewer", 413)
    if len({len(row) for row in rows}) > 1:
        raise wrong(f"The rows of {name} have different lengths", "Send as many numbers in each")
    if not all(type(value) in (int, float) for row in rows for value in row):
        raise wrong(f"{name} holds something else than numbers", remedy)
    try:
        return np.array(rows, dtype=np.float64).reshape(len(rows), -1 if rows and rows[0] else 0)
    except OverflowError:
        raise wrong(f"{name} holds a number that is too large", "Send finite numbers") from None
