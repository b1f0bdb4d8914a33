"""What all ways to a model say alike: why something failed, and that weights are random."""

from __future__ import annotations

import torch

from ..errors import HeatError

__all__ = ["RandomWeights", "broken", "first_line"]


class RandomWeights(HeatError, UserWarning):  # noqa: N818 - a warning that is made of parts, as errors are
    """A model was made with weights that it drew."""


def broken(error: BaseException) -> str:
    """Why an import failed that is not for want of a package; torchvision that was built for another torch is said."""
    cause = f"({type(error).__name__}: {first_line(error)})."
    if "torchvision" not in cause:
        return f"{cause} Try it in Python."
    return (
        f"{cause} torchvision does not fit this torch, {torch.__version__}. Install two that belong together: "
        "pip install -U torch torchvision"
    )


def first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
