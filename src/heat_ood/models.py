"""Models by name: ``timm:NAME``, or ``package.module:function`` that returns one."""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
import inspect
import os
import sys
import warnings
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import parse_qsl

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from .errors import Argument, HeatError, InputError

__all__ = ["load_model", "new_model"]

_CONVERT = (
    'python -c "import torch; from safetensors.torch import save_file; save_file({{k: v.clone() for k, v in '
    "torch.load('{0}', weights_only=True).items()}}, '{1}')\""
)


class _RandomWeights(HeatError, UserWarning):  # noqa: N818 - a warning that is made of parts, as errors are
    """A model was made with weights that it drew."""


def load_model(
    name: str,
    weights: str | PathLike[str] | None = None,
    *,
    pretrained: bool = False,
    folder: Path | None = None,
    root: Path | None = None,
) -> nn.Module:
    """A model in evaluation mode.

    Args:
        name: ``timm:resnet34`` (settings of timm follow as ``timm:resnet34?num_classes=10&in_chans=1``), or
            ``package.module:function``, a function without arguments that returns an ``nn.Module``; the current
            folder is searched too.
        weights: a ``.safetensors`` file for the model, of exactly its parameters and buffers.
        pretrained: fetch timm's own weights; ``timm:resnet34?pretrained`` says the same.
        folder: where ``module.py`` of ``module:function`` is looked for first.
        root: where data lie, for a function that has an argument of this name.

    What a model draws at random when it is made is the same in every run.
    """
    file = None if weights is None else _check_weights(Path(weights))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = _make(name, pretrained, file is not None, folder, root)
    if file is not None:
        _put_weights(model, file, name)
    return model.eval()


def new_model(name: str) -> nn.Module:
    """A model that is to be trained: as it is made, with the weights that it draws.

    Args:
        name: as for :func:`load_model`.
    """
    return _make(name, pretrained=False, own_weights=True)


def _make(
    name: str, pretrained: bool, own_weights: bool, folder: Path | None = None, root: Path | None = None
) -> nn.Module:
    source, _, rest = name.partition(":")
    if not rest:
        raise InputError(f"{name!r} is not a model. Write timm:resnet34, or package.module:function.")
    if source == "timm":
        return _from_timm(rest, pretrained, own_weights)
    if pretrained:
        raise InputError(
            f"pretrained is for timm's models; {name} loads its own weights, or pass a .safetensors file with ",
            Argument("weights"),
            ".",
        )
    return _from_function(source, rest, folder, root)


def _from_timm(text: str, pretrained: bool, own_weights: bool) -> nn.Module:
    name, _, query = text.partition("?")
    settings = {key: _literal(value) for key, value in parse_qsl(query, keep_blank_values=True)}
    pretrained = bool(settings.pop("pretrained", pretrained) or pretrained)
    if pretrained and own_weights:
        raise InputError(
            "A model has either timm's weights or those of a file. Leave out ",
            Argument("pretrained", True),
            " or ",
            Argument("weights"),
            ".",
        )
    try:
        import timm
    except (ImportError, RuntimeError) as error:
        raise InputError(
            f"timm cannot be imported ({_first_line(error)}). Install it with: pip install 'heat-ood[timm]'"
        ) from error
    if not timm.is_model(name):
        close = difflib.get_close_matches(name.split(".")[0], timm.list_models(), n=3, cutoff=0.5)
        meant = f"Did you mean {', '.join(close)}? " if close else ""
        raise InputError(f"timm has no model {name!r}. {meant}timm.list_models() lists all.")
    try:
        model = timm.create_model(name, pretrained=pretrained, **settings)
    except Exception as error:
        if pretrained:
            raise InputError(
                f"The weights of timm:{name} could not be fetched ({_first_line(error)}). Check the network, or save "
                "the weights as a .safetensors file where there is one and pass it with ",
                Argument("weights"),
                ".",
            ) from error
        raise InputError(
            f"timm could not make {name!r} with {settings} ({_first_line(error)}). Check the settings after '?'."
        ) from error
    if not pretrained and not own_weights:
        warnings.warn(
            _RandomWeights(
                f"timm:{name} has random weights, so its features mean little. Pass ",
                Argument("weights"),
                " or ",
                Argument("pretrained", True),
                ".",
            ),
            stacklevel=4,
        )
    assert isinstance(model, nn.Module)
    return model


def _from_function(
    module_name: str, function_name: str, folder: Path | None = None, root: Path | None = None
) -> nn.Module:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = _imported(module_name, folder)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name + ".").startswith(error.name + "."):
            raise InputError(
                f"{module_name} needs the module {error.name!r}, which is not installed. Install it."
            ) from error
        raise InputError(
            f"There is no module {module_name!r}. It is searched for in the current folder ({here}) and among the "
            "installed packages."
        ) from error
    except Exception as error:
        raise InputError(
            f"{module_name} cannot be imported ({type(error).__name__}: {_first_line(error)}). Try it in Python."
        ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        own = [
            n
            for n, v in vars(module).items()
            if inspect.isroutine(v) and getattr(v, "__module__", None) == module.__name__
        ]
        raise InputError(f"{module_name} has no function {function_name!r}. It has {', '.join(own) or 'none'}.")
    arguments = {"root": root} if root is not None and "root" in _parameters(function) else {}
    if required := [name for name in _needed(function) if name not in arguments]:
        raise InputError(
            f"{module_name}:{function_name} needs the arguments {', '.join(required)}. Name a function "
            f"without arguments, for example def model(): return {function_name}({required[0]}=…)."
        )
    try:
        model = function(**arguments)
    except HeatError:
        raise
    except Exception as error:
        raise InputError(
            f"{module_name}:{function_name} raised {type(error).__name__}: {_first_line(error)}. Try it in Python."
        ) from error
    if not isinstance(model, nn.Module):
        raise InputError(
            f"{module_name}:{function_name} returned {type(model).__name__}, not an nn.Module. Return the model itself."
        )
    return model


def _imported(name: str, folder: Path | None) -> ModuleType:
    """A module by its name; one that lies in the folder comes before all others."""
    file = None if folder is None else folder / f"{name}.py"
    if file is None or not file.is_file():
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _parameters(function: Any) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}


def _needed(function: Any) -> list[str]:
    """The arguments without a default."""
    parameters = _parameters(function).values()
    return [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def _check_weights(file: Path) -> Path:
    if not file.is_file():
        raise InputError(f"There is no file {file}. Pass a .safetensors file with the model's weights.")
    if file.suffix != ".safetensors":
        raise InputError(
            f"{file} is not a .safetensors file, and pickled weights (.pt, .pth, .bin) can run code when they are "
            f"opened. Convert them once: {_CONVERT.format(file, file.with_suffix('.safetensors'))}"
        )
    return file


def _put_weights(model: nn.Module, file: Path, name: str) -> None:
    try:
        tensors = load_file(file)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{file} is damaged or no safetensors file ({_first_line(error)}). Save it again.") from error
    own = model.state_dict()
    shared = {key for key in own if key not in tensors and _tied(own, key, tensors)}
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


def _tied(own: dict[str, torch.Tensor], key: str, tensors: dict[str, torch.Tensor]) -> bool:
    """Whether a parameter that is not in the file shares its memory with one that is."""
    return any(k in tensors and v.data_ptr() == own[key].data_ptr() and v.numel() for k, v in own.items() if k != key)


def _literal(text: str) -> Any:
    if not text:
        return True
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
