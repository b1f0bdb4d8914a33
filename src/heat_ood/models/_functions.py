"""Models that a function makes: ``package.module:function``."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from ..errors import HeatError, InputError
from ._words import broken, first_line

__all__ = ["called", "from_function"]


def from_function(
    module_name: str, function_name: str, folder: Path | None = None, root: Path | None = None
) -> nn.Module:
    model = called(module_name, function_name, folder, {} if root is None else {"root": root})
    if not isinstance(model, nn.Module):
        raise InputError(
            f"{module_name}:{function_name} returned {type(model).__name__}, not an nn.Module. Return the model itself."
        )
    return model


def called(module_name: str, function_name: str, folder: Path | None, offered: Mapping[str, Any]) -> Any:
    """What a function returns, which is given of the arguments on offer those that it has.

    Args:
        module_name: of the module that it is in.
        function_name: its own.
        folder: where the module is looked for first; then in the current folder and among the installed packages.
        offered: arguments by name.
    """
    function = found(module_name, function_name, folder)
    arguments = {name: value for name, value in offered.items() if name in parameters(function)}
    if required := [name for name in needed(function) if name not in arguments]:
        raise InputError(
            f"{module_name}:{function_name} needs the arguments {', '.join(required)}. Name a function "
            f"without arguments, for example def model(): return {function_name}({required[0]}=…)."
        )
    try:
        return function(**arguments)
    except HeatError:
        raise
    except Exception as error:
        raise InputError(
            f"{module_name}:{function_name} raised {type(error).__name__}: {first_line(error)}. Try it in Python."
        ) from error


def found(module_name: str, function_name: str, folder: Path | None) -> Any:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = imported(module_name, folder)
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
        raise InputError(f"{module_name} cannot be imported {broken(error)}") from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise InputError(f"{module_name} has no function {function_name!r}. {meant(module, function_name)}")
    return function


def meant(module: ModuleType, name: str) -> str:
    """The functions of a module that have a name like this one; else all that it defines."""
    public = [n for n, v in vars(module).items() if callable(v) and not isinstance(v, nn.Module) and n[0] != "_"]
    if close := difflib.get_close_matches(name, public, n=3, cutoff=0.7):
        return f"Did you mean {', '.join(close)}?"
    own = [n for n in public if inspect.isroutine(v := getattr(module, n)) and v.__module__ == module.__name__]
    return f"It has {', '.join(own[:20]) or 'none'}{' …' if len(own) > 20 else ''}."


def imported(name: str, folder: Path | None) -> ModuleType:
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


def parameters(function: Any) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}


def needed(function: Any) -> list[str]:
    """The arguments without a default."""
    found = parameters(function).values()
    return [p.name for p in found if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
