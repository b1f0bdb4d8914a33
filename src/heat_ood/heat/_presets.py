"""The paper's settings, by data set."""

from __future__ import annotations

from typing import Any

from ..errors import InputError
from ..residual import Residual

__all__ = ["PRESETS", "paper_settings"]

PRESETS = {"cifar10": 1024, "cifar100": 1024, "imagenet": 2048}
"""The width of the residual's hidden layers; all else is the same for the three."""


def paper_settings(name: str) -> dict[str, Any]:
    """The arguments of HEAT, by section 3 and appendix B of the paper; docs/paper.md names what it leaves open."""
    if name not in PRESETS:
        raise InputError(f"There is no preset {name!r}. There are {', '.join(PRESETS)}.")

    def residual(temperature: float) -> Residual:
        return Residual(
            lam=10.0,
            temperature=temperature,
            hidden=PRESETS[name],
            bounded=False,
            whiten=False,
            steps=20,
            step=(1e-4, 1e-5),
            noise=(5e-3, 5e-4),
            widen=(1.0, 1.0),
            shared=False,
            epochs=20,
            lr=5e-6,
            anneal=False,
            patience=1.0,
        )

    return {
        "priors": ("gmm", "gmm-std", "energy"),
        "residual": {"gmm": residual(1e3), "gmm-std": residual(1e3), "energy": residual(1.0)},
        "standardise": "training",
    }
