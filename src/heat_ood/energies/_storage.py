"""Saving and loading: one JSON file and one safetensors file, checked whole; no pickle, no code."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as dump_tensors
from torch import Tensor, nn

from ..errors import FormatError, InputError, NotFittedError
from ..features import Seen
from ..files import Format, is_part, write
from ..registry import CLASSES, complete
from ._base import Energy
from ._calibration import Calibration
from ._marks import Marks
from ._resolution import least_resolution

__all__ = ["DETECTOR_FILE", "load", "save"]

FORMAT = Format("heat-ood detector", 2)
"""Version 2 keeps the resolution of calibration scores (``calibration.limits``)."""
DETECTOR_FILE = "detector.json"
TENSORS = re.compile(r"tensors-[0-9a-f]{16}\.safetensors")
FOREIGN = "Pass the folder that .save(…) wrote."
DAMAGED = "Restore it from a copy, or fit again."


def save(energy: Energy, path: str | PathLike[str]) -> None:
    """Write a folder; a detector that is there is replaced, and a kill leaves the old one or the new one."""
    if not energy.fitted:
        raise NotFittedError(f"An unfitted {type(energy).__name__} cannot be saved. Call .fit(features) first.")
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file. Name a folder to save the detector in.")
    if folder.is_dir() and not ours(folder):
        raise InputError(f"The folder {folder} is not empty and holds no detector. Name another one.")
    folder.mkdir(parents=True, exist_ok=True)

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
    write(folder / manifest["tensors"]["file"], data, durable=True)
    write(folder / DETECTOR_FILE, json.dumps(manifest, indent=1, allow_nan=False), durable=True)
    for old in folder.glob("tensors-*.safetensors*"):
        if old.name != manifest["tensors"]["file"]:
            old.unlink(missing_ok=True)


def load(path: str | PathLike[str]) -> Energy:
    """Read a folder that :func:`save` wrote; anything that is not exactly that is an error."""
    complete()
    manifest = read_manifest(Path(path))
    tensors = read_tensors(Path(path), manifest)
    try:
        energy = decode(manifest["energy"])
        if not isinstance(energy, Energy):
            raise InputError("it is not an energy")
        construct(energy, "", manifest["facts"], tensors)
        if manifest["calibration"] is not None:
            energy.calibration = Calibration(tensors["calibration.scores"])
            if manifest["version"] == 1:  # it compared scores to the last digit
                scores = tensors["calibration.scores"]
                tensors["calibration.limits"] = scores + least_resolution(scores)
        place(energy, by_names_of_today(energy, tensors))
        energy.fingerprint = manifest["fingerprint"]
        energy.seen_ = None if manifest.get("seen") is None else Seen.read(manifest["seen"])
        fitted = manifest.get("fitted", {"samples": 0, "marks": [[], []]})
        energy.samples_, energy.marks_ = int(fitted["samples"]), Marks.read(fitted["marks"])
        validate(energy)
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise FormatError(
            f"The detector in {path} does not fit together ({type(error).__name__}: {error}). It was written by hand "
            "or by another version; fit and save it again."
        ) from error
    return energy.eval()


# Reading


def read_manifest(folder: Path) -> dict[str, Any]:
    file = folder / DETECTOR_FILE
    if file.is_symlink() or not file.is_file():
        what = "no such folder" if not folder.exists() else f"it has no {DETECTOR_FILE}, or a link"
        raise FormatError(f"There is no detector in {folder}: {what}. {FOREIGN}")
    manifest = FORMAT.read(file, FOREIGN, DAMAGED)
    try:
        sound = manifest.get("sha256") == digest_of(manifest)
    except (ValueError, RecursionError):  # nested too deep to be one of ours
        sound = False
    if not sound:
        raise FormatError(f"{file} is damaged: its checksum does not match. {DAMAGED}")
    return manifest


def read_tensors(folder: Path, manifest: dict[str, Any]) -> dict[str, Tensor]:
    entry = manifest.get("tensors")
    name, digest = (entry.get("file"), entry.get("sha256")) if isinstance(entry, dict) else (None, None)
    if not isinstance(name, str) or not TENSORS.fullmatch(name):
        raise FormatError(
            f"The detector in {folder} names the file {str(name)[:80]!r}, which is not one that .save(…) writes into "
            "its own folder. It is not loaded."
        )
    file = folder / name
    if file.is_symlink() or not file.is_file():
        raise FormatError(f"{file} is missing or is a link. Copy the whole folder of the detector.")
    data = file.read_bytes()
    if hashlib.sha256(data).hexdigest() != digest:
        raise FormatError(f"{file} is damaged or truncated: its checksum does not match. {DAMAGED}")
    try:
        return load_tensors(data)
    except (SafetensorError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise FormatError(f"{file} is not a safetensors file ({error}). {DAMAGED}") from error


def construct(energy: Energy, prefix: str, facts: Mapping[str, Any], tensors: dict[str, Tensor]) -> None:
    """Build what ``fit`` would build, from the outside in."""
    inner = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    energy.build(decode(facts[prefix.removesuffix(".")]), inner)
    for name, child in energies_below(energy):
        construct(child, f"{prefix}{name}.", facts, tensors)


def energies_below(module: nn.Module) -> list[tuple[str, Energy]]:
    """The nearest energies inside a module."""
    found: list[tuple[str, Energy]] = []
    for name, child in module.named_children():
        if isinstance(child, Energy):
            found.append((name, child))
        else:
            found += [(f"{name}.{inner}", energy) for inner, energy in energies_below(child)]
    return found


def by_names_of_today(energy: Energy, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a file of any version, by the names that they have now."""
    names: dict[str, str] = {}
    for prefix, module in energy.named_modules():
        if isinstance(module, Energy):
            start = f"{prefix}." if prefix else ""
            names |= {f"{start}{old}": f"{start}{new}" for old, new in module.former.items()}
    return {names.get(name, name): tensor for name, tensor in tensors.items()}


def place(energy: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Put each tensor where it belongs; one too many, NaN, or a weight of another shape, is an error."""
    left = dict(tensors)
    broken = [name for name, tensor in tensors.items() if tensor.is_floating_point() and tensor.isnan().any()]
    if broken:
        raise InputError(f"NaN in {', '.join(broken[:3])}")
    for prefix, module in energy.named_modules():
        for name, buffer in list(module._buffers.items()):
            tensor = left.pop(f"{prefix}.{name}" if prefix else name, None)
            if tensor is not None:
                module._buffers[name] = tensor
            elif buffer is not None and name not in module._non_persistent_buffers_set:
                raise InputError(f"{prefix}.{name} is missing")
        for name, parameter in list(module._parameters.items()):
            tensor = left.pop(f"{prefix}.{name}" if prefix else name)
            if parameter is None or tensor.shape != parameter.shape or not tensor.is_floating_point():
                raise InputError(f"{prefix}.{name} is {tensor.dtype} of shape {tuple(tensor.shape)}")
            module._parameters[name] = nn.Parameter(tensor, requires_grad=False)
    if left:
        raise InputError(f"it has tensors that no part of it knows: {', '.join(sorted(left)[:3])}")


def validate(energy: Energy) -> None:
    """Whether all parts agree in shape and kind, so that a score cannot fail later."""
    if not isinstance(energy.fingerprint, str | None):
        raise InputError(f"the fingerprint is {energy.fingerprint!r}")
    for module in energy.modules():
        if isinstance(module, Energy | Calibration):
            module.validate()


# Writing


def ours(folder: Path) -> bool:
    """Whether a folder holds a detector, the remains of a save that was killed, or nothing."""
    names = [file.name for file in folder.iterdir()]
    if DETECTOR_FILE in names:
        return FORMAT.name.encode() in (folder / DETECTOR_FILE).read_bytes()
    return all(TENSORS.fullmatch(name) or is_part(name) for name in names)


def digest_of(manifest: Mapping[str, Any]) -> str:
    content = {key: value for key, value in manifest.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


# Settings as JSON


def encode(value: Any) -> Any:
    """Settings as JSON: tuples as lists; energies, dataclasses, maps, lists and infinities as tagged objects."""
    if isinstance(value, Energy):
        if CLASSES.get(value.name) is not type(value):
            raise InputError(f"{type(value).__name__} cannot be saved: its class is not known. Call register(…) first.")
        return {"$energy": value.name, "settings": {k: encode(v) for k, v in value.settings.items()}}
    if is_dataclass(value) and not isinstance(value, type) and CLASSES.get(type(value).__name__) is type(value):
        return {
            "$value": type(value).__name__,
            "settings": {f.name: encode(getattr(value, f.name)) for f in fields(value)},
        }
    if isinstance(value, Mapping):
        return {"$map": [[k, encode(v)] for k, v in value.items()]}
    if isinstance(value, tuple):
        return [encode(v) for v in value]
    if isinstance(value, list):
        return {"$list": [encode(v) for v in value]}
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": str(value)}
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, Tensor | np.ndarray | np.generic):
        return encode(value.tolist())
    raise InputError(
        f"A setting of type {type(value).__name__} cannot be saved. Use numbers, strings, lists or energies."
    )


def decode(value: Any) -> Any:
    """What :func:`encode` wrote."""
    if isinstance(value, list):
        return tuple(decode(v) for v in value)
    if not isinstance(value, dict):
        return value
    if "$float" in value:
        return float(value["$float"])
    if "$list" in value:
        return [decode(v) for v in value["$list"]]
    if "$map" in value:
        return {k: decode(v) for k, v in value["$map"]}
    name = value["$value"] if "$value" in value else value["$energy"]
    if name not in CLASSES:
        raise InputError(f"it holds {name!r}, which is not known here: import the module that registers it first")
    cls = CLASSES[name]
    settings = {k: decode(v) for k, v in value["settings"].items()}
    return cls(**{k: v for k, v in settings.items() if k not in getattr(cls, "GONE", ())})
