"""Saving and loading: one JSON file and one safetensors file, checked whole; no pickle, no code."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as dump_tensors
from torch import Tensor

from ..errors import FormatError, InputError, NotFittedError
from ..features import Seen
from ..files import Format, locked, part_of, read, short, sweep_all, write
from ..registry import complete
from ._base import Energy
from ._calibration import Calibration
from ._encoding import decode, encode
from ._marks import Marks
from ._placing import by_names_of_today, construct, place, validate
from ._resolution import least_resolution

__all__ = ["DETECTOR_FILE", "load", "ours", "read_manifest", "remove", "save"]

FORMAT = Format("heat-ood detector", 2)
"""Version 2 keeps the resolution of calibration scores (``calibration.limits``)."""
DETECTOR_FILE = "detector.json"
TENSORS = re.compile(r"tensors-([0-9a-f]{16})\.safetensors")
FOREIGN = "Pass the folder that .save(…) wrote."
DAMAGED = "Restore it from a copy, or fit again."
TRIES = 3
"""So often a reader looks again where a writer was quicker, before it asks the writers to wait."""


def save(energy: Energy, path: str | PathLike[str]) -> None:
    """Write a folder; a detector that is there is replaced, and a kill leaves the old one or the new one.

    The tensors come first, under a name of their own content; the JSON file names them, and is replaced in one step.
    Of several writers each waits for its turn.
    """
    if not energy.fitted:
        raise NotFittedError(f"An unfitted {type(energy).__name__} cannot be saved. Call .fit(features) first.")
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file. Name a folder to save the detector in.")
    manifest, data = contents_of(energy)
    with locked(folder):
        if not ours(folder):
            raise InputError(f"The folder {folder} is not empty and holds no detector. Name another one.")
        before = named_in(folder)
        name = manifest["tensors"]["file"]
        write(folder / name, data, durable=True)
        write(folder / DETECTOR_FILE, json.dumps(manifest, indent=1, allow_nan=False), durable=True)
        tidy(folder, name, before)


def contents_of(energy: Energy) -> tuple[dict[str, Any], bytes]:
    """What the two files hold."""
    state = {name: tensor.detach().cpu().contiguous() for name, tensor in energy.state_dict().items()}
    data = dump_tensors(state)
    digest = hashlib.sha256(data).hexdigest()
    parts = {name: module for name, module in energy.named_modules() if isinstance(module, Energy)}
    manifest = FORMAT.stamp(
        {
            "energy": encode(energy),
            "facts": {name: encode(part.facts()) for name, part in parts.items()},
            "fingerprint": energy.fingerprint,
            "seen": None if energy.seen_ is None else energy.seen_.to_dict(),
            "fitted": {"samples": energy.samples_, "marks": [list(part) for part in energy.marks_]},
            "calibration": None if energy.calibration is None else len(energy.calibration.scores),
            "tensors": {"file": f"tensors-{digest[:16]}.safetensors", "sha256": digest},
        }
    )
    manifest["sha256"] = digest_of(manifest)
    return manifest, data


def load(path: str | PathLike[str]) -> Energy:
    """Read a folder that :func:`save` wrote; anything that is not exactly that is an error."""
    complete()
    manifest, tensors = read_both(Path(path))
    try:
        energy = decode(manifest["energy"])
        if not isinstance(energy, Energy):
            raise InputError("it is not an energy")
        construct(energy, "", manifest["facts"], tensors)
        if manifest["calibration"] is not None:
            energy.calibration = Calibration(tensors["calibration.scores"])
            if len(energy.calibration.scores) != count_of(manifest["calibration"]):
                raise InputError(f"the calibration is not one of {manifest['calibration']} samples")
            if manifest["version"] == 1:  # it compared scores to the last digit
                scores = tensors["calibration.scores"]
                tensors["calibration.limits"] = scores + least_resolution(scores)
        place(energy, by_names_of_today(energy, tensors))
        energy.fingerprint = manifest["fingerprint"]
        energy.seen_ = None if manifest.get("seen") is None else Seen.read(manifest["seen"])
        fitted = manifest.get("fitted", {"samples": 0, "marks": [[], []]})
        energy.samples_, energy.marks_ = count_of(fitted["samples"]), Marks.read(fitted["marks"])
        validate(energy)
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise FormatError(
            f"The detector in {path} does not fit together ({type(error).__name__}: {error}). It was written by hand "
            "or by another version; fit and save it again."
        ) from error
    return energy.eval()


# Reading


def read_both(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The JSON file and the tensors that it names, of one and the same detector, whoever writes meanwhile.

    A writer may remove the tensors between the two. Then there is another JSON file, and this looks again; it is the
    last time that the writers have to wait.
    """
    for _ in range(TRIES):
        manifest = read_manifest(folder)
        try:
            return manifest, read_tensors(folder, manifest)
        except FileNotFoundError:
            continue
    with locked(folder):
        manifest = read_manifest(folder)
        try:
            return manifest, read_tensors(folder, manifest)
        except FileNotFoundError as error:
            raise FormatError(f"{error.filename} is missing. Copy the whole folder of the detector.") from error


def read_manifest(folder: Path) -> dict[str, Any]:
    file = folder / DETECTOR_FILE
    try:
        manifest = FORMAT.read(file, FOREIGN, DAMAGED, follow=False)
    except (FileNotFoundError, NotADirectoryError) as error:
        what = f"it has no {DETECTOR_FILE}" if folder.is_dir() else "no such folder"
        raise FormatError(f"There is no detector in {folder}: {what}. {FOREIGN}") from error
    try:
        sound = manifest.get("sha256") == digest_of(manifest)
    except (ValueError, RecursionError):  # nested too deep to be one of ours
        sound = False
    if not sound:
        raise FormatError(f"{file} is damaged: its checksum does not match. {DAMAGED}")
    return manifest


def read_tensors(folder: Path, manifest: dict[str, Any]) -> dict[str, Tensor]:
    """The tensors that a manifest names; a ``FileNotFoundError`` where they are gone."""
    entry = manifest.get("tensors")
    name, digest = (entry.get("file"), entry.get("sha256")) if isinstance(entry, dict) else (None, None)
    if not isinstance(name, str) or not TENSORS.fullmatch(name):
        raise FormatError(
            f"The detector in {folder} names the file {str(name)[:80]!r}, which is not one that .save(…) writes into "
            "its own folder. It is not loaded."
        )
    file = folder / name
    try:
        data = read(file, follow=False)
    except FormatError as error:
        raise FormatError(f"{error} Copy the whole folder of the detector.") from error
    if hashlib.sha256(data).hexdigest() != digest:
        raise FormatError(f"{file} is damaged or truncated: its checksum does not match. {DAMAGED}")
    try:
        return load_tensors(data)
    except (SafetensorError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise FormatError(f"{file} is not a safetensors file ({error}). {DAMAGED}") from error


def count_of(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise InputError(f"{short(value)} is no number of samples")
    return value


# Writing


def ours(folder: Path) -> bool:
    """Whether a folder holds a detector, the remains of a save that was killed, or nothing."""
    names = [file.name for file in folder.iterdir()]
    if DETECTOR_FILE not in names:
        return all(is_tensors(part_of(name) or name) or part_of(name) == DETECTOR_FILE for name in names)
    try:
        return FORMAT.name.encode() in read(folder / DETECTOR_FILE, follow=False)
    except (FormatError, FileNotFoundError):
        return False


def named_in(folder: Path) -> str | None:
    """The tensors that the detector in a folder names; None where there is none, or one that cannot be read."""
    try:
        entry = read_manifest(folder).get("tensors")
    except (FormatError, OSError):
        return None
    name = entry.get("file") if isinstance(entry, dict) else None
    return name if isinstance(name, str) and TENSORS.fullmatch(name) else None


def tidy(folder: Path, kept: str | None, before: str | None) -> None:
    """Remove the tensors of the detector that was there before, and what killed writers left; nothing else.

    Tensors are surely ours where the replaced JSON file named them, or where their name is that of their content.
    """
    sweep_all(folder, lambda name: part_of(name) == DETECTOR_FILE or is_tensors(part_of(name) or ""))
    for file in folder.iterdir():
        other = file.name != kept and is_tensors(file.name) and not file.is_symlink() and file.is_file()
        if other and (file.name == before or is_named_by_content(file)):
            file.unlink(missing_ok=True)


def is_tensors(name: str) -> bool:
    return TENSORS.fullmatch(name) is not None


def is_named_by_content(file: Path) -> bool:
    try:
        with open(file, "rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
    except OSError:
        return False
    return file.name == f"tensors-{digest[:16]}.safetensors"


def remove(path: str | PathLike[str]) -> None:
    """Remove a saved detector and, where nothing else is in it, its folder."""
    folder = Path(path)
    if not folder.is_dir() or not ours(folder):
        return
    with locked(folder):
        before = named_in(folder)
        (folder / DETECTOR_FILE).unlink(missing_ok=True)
        tidy(folder, None, before)
    with suppress(OSError):  # something else is in it
        folder.rmdir()


def digest_of(manifest: Mapping[str, Any]) -> str:
    content = {key: value for key, value in manifest.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
