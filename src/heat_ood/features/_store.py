"""Features on disk: a folder of plain ``.npy`` files and a manifest, written batch by batch, opened memory-mapped."""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from ..errors import Argument, FormatError, InputError
from ..files import is_part, sweep
from ._columns import Head, Layer, column_name
from ._features import Features
from ._manifest import AGAIN, FEATURES_FILE, FILE_NAME, Column, Manifest, read_manifest, write_manifest
from ._seen import Seen

__all__ = ["Writer", "open_store", "save"]

HEADER = 128
OVERWRITE = Argument("overwrite", True)
ELSEWHERE = ("Choose another path, or pass ", OVERWRITE, ".")
Numpy = np.ndarray[Any, Any]


class Writer:
    """Append batches of features to a folder; what is there survives a kill at any moment.

    Every batch is appended to the files first and enters the manifest after, in one step. Opened again, the
    writer cuts the files back to what the manifest says and goes on; ``manifest.count`` samples are done.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Writer(folder) as writer:
        ...         writer.append(Features(avg=torch.rand(3, 2)))
        ...         writer.append(Features(avg=torch.rand(1, 2)))
        ...         writer.finish()
        ...     Features.open(folder)
        Features(n=4, avg=2)
    """

    def __init__(
        self,
        path: str | PathLike[str],
        fingerprint: str | None = None,
        *,
        overwrite: bool = False,
        origin: str = "",
        seen: Seen | None = None,
    ) -> None:
        known = {} if seen is None else seen.to_dict()
        self.folder = Path(path)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._files: dict[Column, BinaryIO] = {}
        self._stack = ExitStack()
        (clear if overwrite else tidy)(self.folder)
        if any(self.folder.iterdir()):
            self.manifest = read_manifest(self.folder)
            if not self.manifest.count and not self.manifest.finished:
                self.manifest.fingerprint, self.manifest.origin = fingerprint, origin  # nothing yet that could be mixed
                self.manifest.seen = known
            self._check_fingerprint(fingerprint)
            self._check_origin(origin)
            if not self.manifest.finished:
                self.manifest.seen = Seen.read({**known, **self.manifest.seen}).to_dict()
        else:
            self.manifest = Manifest(fingerprint, origin=origin, seen=known)
            write_manifest(self.manifest, self.folder)

    def _check_fingerprint(self, fingerprint: str | None) -> None:
        if self.manifest.fingerprint != fingerprint:
            raise InputError(
                f"The features in {self.folder} were made by another model, or with other layers "
                f"(fingerprint {str(self.manifest.fingerprint)[:12]}, now {str(fingerprint)[:12]}). ",
                *ELSEWHERE,
            )

    def _check_origin(self, origin: str) -> None:
        if self.manifest.origin != origin:
            there, now = (text or "as the loader gives them" for text in (self.manifest.origin, origin))
            raise InputError(f"The features in {self.folder} are of other samples ({there}; now {now}). ", *ELSEWHERE)

    def check_seen(self, seen: Seen) -> None:
        """The samples must be those that the store was begun with, as far as it can be known, prepared alike."""
        before = Seen.read(self.manifest.seen)
        before.check(seen)
        if None not in (before.samples, seen.samples) and before.samples != seen.samples:
            where = f" ({before.source}; now {seen.source})" if before.source != seen.source else ""
            raise InputError(f"The features in {self.folder} are of other samples{where}. ", *ELSEWHERE)

    def append(self, features: Features) -> None:
        """Write one batch; labels and columns must be the same in every batch."""
        if self.manifest.finished:
            raise InputError(f"The features in {self.folder} are finished. ", *ELSEWHERE)
        arrays = arrays_of(features)
        columns = [column_of(key, array, i) for i, (key, array) in enumerate(arrays.items())]
        if self.manifest.count == 0:
            self._begin(columns, features.head)
        elif columns != self.manifest.columns:
            raise InputError(
                f"This batch has the columns {summary(columns)}, but {self.folder} holds "
                f"{summary(self.manifest.columns)}. "
                "Extract with the settings and labels that it was begun with, or pass ",
                OVERWRITE,
                ".",
            )
        for column, array in zip(columns, arrays.values(), strict=True):
            file = self._open(column)
            file.write(array.data if array.size else b"")
            file.flush()
        self.manifest.add_batch(len(features))
        write_manifest(self.manifest, self.folder)

    def _begin(self, columns: list[Column], head: Head | None) -> None:
        for stale in self.folder.glob("*.npy"):
            stale.unlink()
        self.manifest.columns = columns
        if head is not None:
            weight, bias = (as_numpy(t) for t in head)
            self.manifest.classes = len(weight)
            self.manifest.head = [Column("weight", None, "head-weight.npy", weight.dtype.str, weight.shape[1])]
            self.manifest.head += [Column("bias", None, "head-bias.npy", bias.dtype.str, 0)]
            for column, array in zip(self.manifest.head, (weight, bias), strict=True):
                (self.folder / column.file).write_bytes(header(column, len(array)) + array.tobytes())
        for column in columns:
            (self.folder / column.file).write_bytes(header(column, 0))

    def _open(self, column: Column) -> BinaryIO:
        if column not in self._files:
            path, end = locate(self.folder, column), HEADER + self.manifest.count * column.row
            if not path.is_file() or path.stat().st_size < end:
                raise FormatError(f"{path} is shorter than its manifest says. ", *AGAIN)
            file = self._stack.enter_context(open(path, "r+b"))  # noqa: SIM115 - the stack closes it
            file.truncate(end)
            file.seek(end)
            self._files[column] = file
        return self._files[column]

    def labels(self) -> Numpy | None:
        """The labels written so far."""
        column = next((c for c in self.manifest.columns if c.pooling == "labels"), None)
        if column is None or self.manifest.count == 0:
            return None
        self._open(column)
        return np.fromfile(locate(self.folder, column), dtype=column.dtype, count=self.manifest.count, offset=HEADER)

    def finish(self) -> None:
        """Give the files their final shape and declare the store finished."""
        for column in self.manifest.columns:
            file = self._open(column)
            file.seek(0)
            file.write(header(column, self.manifest.count))
            file.flush()
            os.fsync(file.fileno())
        self.manifest.finished = True
        write_manifest(self.manifest, self.folder)
        self.close()

    def close(self) -> None:
        self._stack.close()
        self._files.clear()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def save(features: Features, path: str | PathLike[str], rows: int = 8192) -> None:
    """Write features to a folder, ``rows`` at a time; a store that is there already is replaced once all is written."""
    target = Path(path)
    if target.exists() and any(target.iterdir() if target.is_dir() else [target]):
        if not (target / FEATURES_FILE).is_file():
            raise InputError(f"{target} exists and holds no features. Choose another path, so that nothing is lost.")
        read_manifest(target)
    partial = target.with_name(f".{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    with Writer(partial, features.fingerprint, seen=features.seen) as writer:
        for start in range(0, max(len(features), 1), rows):
            writer.append(features[start : start + rows])
        writer.finish()
    if target.exists():
        clear(target)
        target.rmdir()
    os.rename(partial, target)


def open_store(path: str | PathLike[str]) -> Features:
    """Open a finished store, memory-mapped; nothing is read until it is used, and changes stay in memory."""
    folder = Path(path)
    manifest = read_manifest(folder)
    if not manifest.finished:
        raise FormatError(
            f"The features in {folder} are not finished ({manifest.count} samples so far). Run extract again with "
            "the same loader; it will continue."
        )
    columns = {(c.layer, c.pooling): load(folder, c, manifest.count) for c in manifest.columns}
    head = tuple(load(folder, c, manifest.classes) for c in manifest.head)
    layers = {
        layer: Layer(columns.get((layer, "avg")), columns.get((layer, "std")))
        for layer, _ in columns
        if layer is not None
    }
    first = {pooling: column for (layer, pooling), column in columns.items() if layer is None}
    try:
        known = Seen.read(manifest.seen) if manifest.seen else None
        return Features(
            **first,
            layers=layers,
            head=Head(*head) if head else None,
            fingerprint=manifest.fingerprint,
            seen=known,
        )
    except InputError as error:
        raise FormatError(f"The files in {folder} do not fit together: {error}") from None


def load(folder: Path, column: Column, count: int) -> Tensor:
    path = locate(folder, column)
    shape = (count, column.width) if column.width else (count,)
    try:
        array = np.lib.format.open_memmap(path, mode="c")
    except (OSError, ValueError, EOFError, SyntaxError, TypeError, OverflowError) as error:
        raise FormatError(f"{path} is missing or damaged ({error}). ", *AGAIN) from None
    if array.shape != shape or array.dtype.str != column.dtype or not array.flags.c_contiguous:
        raise FormatError(
            f"{path} holds {array.shape} of {array.dtype.str} but its manifest says {shape} of {column.dtype}. ",
            *AGAIN,
        )
    if path.stat().st_size != HEADER + count * column.row:
        raise FormatError(f"{path} has not the size that its manifest says. ", *AGAIN)
    return torch.from_numpy(array)


def locate(folder: Path, column: Column) -> Path:
    path = folder / column.file
    if path.resolve().parent != folder.resolve():
        raise FormatError(
            f"{path} leads out of its folder. Files of a store must lie in the folder itself; extract the features "
            "again."
        )
    return path


def clear(folder: Path) -> None:
    """Remove a store's files, once its manifest says that it is empty; a folder with anything else is an error."""
    files = [f for f in folder.iterdir() if f.name != FEATURES_FILE and not is_part(f.name, FEATURES_FILE)]
    if files and not (folder / FEATURES_FILE).is_file():
        raise InputError(f"{folder} exists and holds no features. Choose another path, so that nothing is lost.")
    if foreign := sorted(f.name for f in files if not FILE_NAME.fullmatch(f.name)):
        raise InputError(
            f"{folder} also holds files that are no features, {foreign[0]} among them. Choose another path, so that "
            "nothing is lost."
        )
    if (folder / FEATURES_FILE).is_file():
        write_manifest(Manifest(), folder)
        for file in files:
            file.unlink()
        (folder / FEATURES_FILE).unlink()
    tidy(folder)


def tidy(folder: Path) -> None:
    """Remove what a kill left of a manifest."""
    sweep(folder / FEATURES_FILE)


def header(column: Column, count: int) -> bytes:
    """A ``.npy`` header of fixed length, so that the count can be put in at the end."""
    shape = (count, column.width) if column.width else (count,)
    text = repr({"descr": column.dtype, "fortran_order": False, "shape": shape})
    return b"\x93NUMPY\x01\x00" + (HEADER - 10).to_bytes(2, "little") + text.encode().ljust(HEADER - 11) + b"\n"


def arrays_of(features: Features) -> dict[tuple[str | None, str], Numpy]:
    arrays = {key: as_numpy(column) for key, column in features.columns.items()}
    if features.labels is not None:
        arrays[None, "labels"] = as_numpy(features.labels)
    return arrays


def as_numpy(tensor: Tensor) -> Numpy:
    tensor = tensor.detach().cpu()
    array = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).contiguous().numpy()
    return array.astype(array.dtype.newbyteorder("<"), copy=False)


def column_of(key: tuple[str | None, str], array: Numpy, index: int) -> Column:
    layer, pooling = key
    file = f"{pooling}.npy" if layer is None else f"layer-{index:03d}-{pooling}.npy"
    return Column(pooling, layer, file, array.dtype.str, array.shape[1] if array.ndim == 2 else 0)


def summary(columns: list[Column]) -> str:
    return ", ".join(f"{column_name((c.layer, c.pooling))} ({c.width or 1} × {c.dtype})" for c in columns)
