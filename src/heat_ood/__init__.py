"""Out-of-distribution detection for frozen classifiers; a score is an energy: higher = more out-of-distribution."""

from importlib import import_module

TYPE_CHECKING = False  # as in typing, which would be half of the time that this file takes

if TYPE_CHECKING:
    from typing import Any

    from .energies import Energy, Prior, create, methods
    from .errors import FormatError, HeatError, InputError, NotFittedError
    from .evaluation import Evaluation, evaluate
    from .export import load
    from .features import Extractor, Features
    from .guarding import protect
    from .heat import HEAT
    from .residual import Residual

__all__ = [
    "HEAT",
    "Energy",
    "Evaluation",
    "Extractor",
    "Features",
    "FormatError",
    "HeatError",
    "InputError",
    "NotFittedError",
    "Prior",
    "Residual",
    "create",
    "evaluate",
    "load",
    "methods",
    "protect",
]
__version__ = "0.2.0"

_HOMES = {
    "energies": ("Energy", "Prior", "create", "methods"),
    "errors": ("FormatError", "HeatError", "InputError", "NotFittedError"),
    "evaluation": ("Evaluation", "evaluate"),
    "features": ("Extractor", "Features"),
    "export": ("load",),
    "guarding": ("protect",),
    "heat": ("HEAT",),
    "residual": ("Residual",),
}


def __getattr__(name: str) -> "Any":
    """Public names are imported when they are first used, so that ``heat-ood --help`` need not load torch."""
    if name == "plot":
        return import_module(".plot", __name__)
    for module, names in _HOMES.items():
        if name in names:
            value = globals()[name] = getattr(import_module(f".{module}", __name__), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


def _load_methods() -> None:
    """Import all rooms that have methods, for the registry: the one of HEAT knows the others."""
    import_module(".heat", __name__)
