"""Models by name: ``timm:NAME``, or ``package.module:function`` that returns one."""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
import inspect
import os
import re
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
    "python -c \"import torch; from safetensors.torch import save_file; x = torch.load('{0}', weights_only=False); "
    "x = x.state_dict() if hasattr(x, 'state_dict') else x.get('state_dict', x.get('model', x)); "
    "save_file({{k: v.clone() for k, v in x.items()}}, '{1}')\""
)
_PICKLES = (".pt", ".pth", ".bin", ".ckpt", ".tar")
_WRAPPERS = ("state_dict", "model_state_dict", "model", "net", "module", "ema", "model_ema", "state_dict_ema")
_PREFIXES = ("module.", "_orig_mod.", "model.", "net.")
_SAFE = (2, 6)
"""The first torch whose restricted unpickler cannot be tricked (CVE-2025-32434)."""
_LOADING = ("checkpoint_path", "pretrained_cfg", "pretrained_cfg_overlay", "cache_dir")
"""Settings of timm that make it read a file, which may be a pickle."""


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
        weights: a file of exactly the model's parameters and buffers: ``.safetensors``, or what ``torch.save`` wrote
            (``.pt``, ``.pth``, ``.bin``, ``.ckpt``), as far as torch's restricted unpickler reads it
            (``weights_only=True``, which makes tensors and plain containers alone). Dictionaries around the weights
            (``state_dict``, ``model``, ``ema``, …) and prefixes (``module.``, ``_orig_mod.``) are taken off.
        pretrained: fetch timm's own weights; ``timm:resnet34?pretrained`` says the same.
        folder: where ``module.py`` of ``module:function`` is looked for first.
        root: where data lie, for a function that has an argument of this name.

    What a model draws at random when it is made is the same in every run. A function is called a second time, to see
    which weights it draws; those are said in a warning.
    """
    file = None if weights is None else _check_weights(Path(weights))
    model = _seeded(0, name, pretrained, file is not None, folder, root)
    if file is not None:
        _put_weights(model, file, name)
    elif not name.startswith("timm:"):
        _say_what_is_drawn(model, name, folder, root)
    return model.eval()


def _seeded(seed: int, *arguments: Any) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _make(*arguments)


def _say_what_is_drawn(model: nn.Module, name: str, folder: Path | None, root: Path | None) -> None:
    """Warn of weights that are others under another seed: nobody trained them."""
    try:
        again = _seeded(1, name, False, False, folder, root)
    except HeatError:
        again = model
    other = again.state_dict()
    own = {key: p for key, p in model.named_parameters() if p.ndim > 1}
    drawn = [k for k, p in own.items() if k not in other or not torch.equal(p.cpu(), other[k].cpu())]
    some = f"{', '.join(drawn[:3])}{' …' if len(drawn) > 3 else ''}"
    if again is model and own:
        text = f"{name} makes one model alone, so it cannot be told whether its weights are random. If they are, pass "
    elif own and len(drawn) == len(own):
        text = f"{name} has random weights, so its features mean little. Pass "
    elif drawn:
        text = f"Some weights of {name} are random ({some}). If they should not be, pass "
    else:
        return
    warnings.warn(
        _RandomWeights(text, Argument("weights"), ", or load weights in the function."),
        stacklevel=3,
    )


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
            f"pretrained is for timm's models; {name} loads its own weights, or pass a file of weights with ",
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
    if reading := [key for key in settings if key in _LOADING]:
        raise InputError(
            f"timm:{name}?{reading[0]}=… would have timm read a file, and a pickle can run code. Pass the file with ",
            Argument("weights"),
            " instead.",
        )
    try:
        import timm
    except ModuleNotFoundError as error:
        if error.name == "timm":
            raise InputError("timm is not installed. Install it with: pip install 'heat-ood[timm]'") from error
        raise InputError(f"timm needs the module {error.name!r}, which is not installed. Install it.") from error
    except Exception as error:
        raise InputError(f"timm is installed, but cannot be imported {_broken(error)}") from error
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
        raise InputError(f"{module_name} cannot be imported {_broken(error)}") from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise InputError(f"{module_name} has no function {function_name!r}. {_meant(module, function_name)}")
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


def _meant(module: ModuleType, name: str) -> str:
    """The functions of a module that have a name like this one; else all that it defines."""
    public = [n for n, v in vars(module).items() if callable(v) and not isinstance(v, nn.Module) and n[0] != "_"]
    if close := difflib.get_close_matches(name, public, n=3, cutoff=0.7):
        return f"Did you mean {', '.join(close)}?"
    own = [n for n in public if inspect.isroutine(v := getattr(module, n)) and v.__module__ == module.__name__]
    return f"It has {', '.join(own[:20]) or 'none'}{' …' if len(own) > 20 else ''}."


def _broken(error: BaseException) -> str:
    """Why an import failed that is not for want of a package; torchvision that was built for another torch is said."""
    cause = f"({type(error).__name__}: {_first_line(error)})."
    if "torchvision" not in cause:
        return f"{cause} Try it in Python."
    return (
        f"{cause} torchvision does not fit this torch, {torch.__version__}. Install two that belong together: "
        "pip install -U torch torchvision"
    )


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
    if file.suffix not in (".safetensors", *_PICKLES):
        raise InputError(
            f"{file} is no file of weights by its name: they end in .safetensors, or in {', '.join(_PICKLES)}."
        )
    return file


def _read_weights(file: Path) -> dict[str, torch.Tensor]:
    """The tensors of a file by name, out of whatever they are wrapped in."""
    if file.suffix in _PICKLES:
        return _state_of(_unpickled(file), file)
    try:
        return load_file(file)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{file} is damaged or no safetensors file ({_first_line(error)}). Save it again.") from error


def _unpickled(file: Path) -> Any:
    """What ``torch.save`` wrote, by torch's restricted unpickler: tensors and plain containers, and no code is run."""
    if tuple(map(int, re.findall(r"\d+", torch.__version__)[:2])) < _SAFE:
        raise InputError(
            f"torch {torch.__version__} does not open {file} safely. Install torch {_SAFE[0]}.{_SAFE[1]} or later."
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of TorchScript, which the error below says
            return torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        text = str(error)
        held = re.search(r"(?:GLOBAL|nsupported class) ([\w.]+\w)", text)
        if held is None and "TorchScript archives" not in text:
            raise InputError(f"{file} is damaged or holds no weights ({_first_line(error)}). Save it again.") from error
        what = "a TorchScript program" if held is None else f"a pickled {held[1]}"
        raise InputError(
            f"{file} holds more than weights ({what}), which can run code when it is opened. If you trust it, convert "
            f"it once: {_CONVERT.format(file, file.with_suffix('.safetensors'))}"
        ) from error


def _state_of(found: Any, file: Path) -> dict[str, torch.Tensor]:
    """The weights in a checkpoint: itself, or the first entry that holds them."""
    if isinstance(found, Mapping):
        for key in _WRAPPERS:
            if isinstance(found.get(key), Mapping):
                return _state_of(found[key], file)
        state = {str(key): value for key, value in found.items() if isinstance(value, torch.Tensor)}
        if state and len(state) == len(found):
            return state
    entries = ", ".join(map(str, list(found)[:5])) if isinstance(found, Mapping) else type(found).__name__
    raise InputError(
        f"{file} holds no weights by name ({entries}). Save them with torch.save(model.state_dict(), file)."
    )


def _without_prefix(tensors: dict[str, torch.Tensor], own: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """The names as the model has them, without what DataParallel, torch.compile and trainers put before them."""
    if len(tensors) > 1 and "n_averaged" not in own:  # of torch.optim.swa_utils.AveragedModel
        tensors = {key: value for key, value in tensors.items() if key != "n_averaged"}
    for prefix in _PREFIXES:
        if not set(tensors) <= set(own) and all(key.startswith(prefix) for key in tensors):
            return _without_prefix({key.removeprefix(prefix): value for key, value in tensors.items()}, own)
    return tensors


def _put_weights(model: nn.Module, file: Path, name: str) -> None:
    tensors = _without_prefix(_read_weights(file), model.state_dict())
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
