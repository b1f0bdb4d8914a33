"""Weights of a file, put into a model: safetensors, or what torch's restricted unpickler reads."""

from __future__ import annotations

import re
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from ..errors import InputError
from ._words import first_line

__all__ = ["check_weights", "put_weights"]

CONVERT = (
    "python -c \"import torch; from safetensors.torch import save_file; x = torch.load('{0}', weights_only=False); "
    "x = x.state_dict() if hasattr(x, 'state_dict') else x.get('state_dict', x.get('model', x)); "
    "save_file({{k: v.clone() for k, v in x.items()}}, '{1}')\""
)
PICKLES = (".pt", ".pth", ".bin", ".ckpt", ".tar")
WRAPPERS = ("state_dict", "model_state_dict", "model", "net", "module", "ema", "model_ema", "state_dict_ema")
PREFIXES = ("module.", "_orig_mod.", "model.", "net.")
SAFE = (2, 6)
"""The first torch whose restricted unpickler cannot be tricked (CVE-2025-32434)."""
SLACK = 1 << 20
"""Bytes that an archive may unpack to beyond its own size: TorchScript packs its code."""


def check_weights(file: Path) -> Path:
    if not file.is_file():
        what = f"{file} is no file" if file.exists() else f"There is no file {file}"
        raise InputError(f"{what}. Pass a .safetensors file with the model's weights.")
    if file.suffix not in (".safetensors", *PICKLES):
        raise InputError(
            f"{file} is no file of weights by its name: they end in .safetensors, or in {', '.join(PICKLES)}."
        )
    return file


def read_weights(file: Path) -> dict[str, torch.Tensor]:
    """The tensors of a file by name, out of whatever they are wrapped in."""
    if file.suffix in PICKLES:
        return state_of(unpickled(file), file)
    try:
        return load_file(file)
    except (SafetensorError, OSError, ValueError, RuntimeError, MemoryError) as error:
        raise InputError(f"{file} is damaged or no safetensors file ({first_line(error)}). Save it again.") from error


def unpickled(file: Path) -> Any:
    """What ``torch.save`` wrote, by torch's restricted unpickler: tensors and plain containers, and no code is run."""
    if tuple(map(int, re.findall(r"\d+", torch.__version__)[:2])) < SAFE:
        raise InputError(
            f"torch {torch.__version__} does not open {file} safely. Install torch {SAFE[0]}.{SAFE[1]} or later."
        )
    if unpacks(file):
        raise InputError(
            f"{file} unpacks to much more than it is, and torch.save packs nothing. Save it again, with torch.save."
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of TorchScript, which the error below says
            return torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        text = str(error)
        held = re.search(r"(?:GLOBAL|nsupported class) ([\w.]+\w)", text)
        if held is None and "TorchScript archives" not in text:
            raise InputError(f"{file} is damaged or holds no weights ({first_line(error)}). Save it again.") from error
        what = "a TorchScript program" if held is None else f"a pickled {held[1]}"
        raise InputError(
            f"{file} holds more than weights ({what}), which can run code when it is opened. If you trust it, convert "
            f"it once: {command(file)}"
        ) from error


def unpacks(file: Path) -> bool:
    """Whether an archive holds more than it is, by its own list."""
    try:
        with zipfile.ZipFile(file) as archive:
            packed = [e.file_size for e in archive.infolist() if e.compress_type != zipfile.ZIP_STORED]
            return sum(packed) > file.stat().st_size + SLACK
    except (OSError, ValueError, NotImplementedError, RuntimeError, EOFError, zipfile.BadZipFile):
        return False  # torch says what it is


def command(file: Path) -> str:
    """What converts a pickle; a name that a shell or Python would read as more than a name is left to the reader."""
    name = str(file) if re.fullmatch(r"[\w./ +-]+", str(file)) else "FILE.pt"
    return CONVERT.format(name, Path(name).with_suffix(".safetensors"))


def state_of(found: Any, file: Path) -> dict[str, torch.Tensor]:
    """The weights in a checkpoint: itself, or the first entry that holds them."""
    for _ in WRAPPERS:  # a dictionary may hold itself
        inner = [found[key] for key in WRAPPERS if isinstance(found, Mapping) and isinstance(found.get(key), Mapping)]
        found = inner[0] if inner else found
    if isinstance(found, Mapping):
        state = {str(key): value for key, value in found.items() if isinstance(value, torch.Tensor)}
        if state and len(state) == len(found):
            return state
    entries = ", ".join(map(str, list(found)[:5])) if isinstance(found, Mapping) else type(found).__name__
    raise InputError(
        f"{file} holds no weights by name ({entries}). Save them with torch.save(model.state_dict(), file)."
    )


def without_prefix(tensors: dict[str, torch.Tensor], own: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """The names as the model has them, without what DataParallel, torch.compile and trainers put before them."""
    if len(tensors) > 1 and "n_averaged" not in own:  # of torch.optim.swa_utils.AveragedModel
        tensors = {key: value for key, value in tensors.items() if key != "n_averaged"}
    for prefix in PREFIXES:
        if not set(tensors) <= set(own) and all(key.startswith(prefix) for key in tensors):
            return without_prefix({key.removeprefix(prefix): value for key, value in tensors.items()}, own)
    return tensors


def put_weights(model: nn.Module, file: Path, name: str) -> None:
    tensors = without_prefix(read_weights(file), model.state_dict())
    own = model.state_dict()
    shared = {key for key in own if key not in tensors and tied(own, key, tensors)}
    missing, foreign = own.keys() - tensors.keys() - shared, tensors.keys() - own.keys()
    wrong = [
        f"{k} {tuple(tensors[k].shape)} for {tuple(own[k].shape)}"
        for k in own
        if k in tensors and tensors[k].shape != own[k].shape
    ]
    if missing or foreign or wrong:
        parts = {"missing": sorted(missing), "unknown": sorted(foreign), "of another shape": wrong}
        text = "; ".join(
            f"{label}: {', '.join(keys[:3])}{' …' if len(keys) > 3 else ''}" for label, keys in parts.items() if keys
        )
        raise InputError(
            f"The weights in {file} are not those of {name} ({text}). Name the model that they belong to; "
            "of timm's, num_classes follows the name: timm:resnet34?num_classes=10."
        )
    model.load_state_dict(tensors, strict=False)


def tied(own: dict[str, torch.Tensor], key: str, tensors: dict[str, torch.Tensor]) -> bool:
    """Whether a parameter that is not in the file shares its memory with one that is."""
    return any(k in tensors and v.data_ptr() == own[key].data_ptr() and v.numel() for k, v in own.items() if k != key)
