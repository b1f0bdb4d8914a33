"""The paper's settings, by data set: those of its text, and those of the code that its authors released."""

from __future__ import annotations

from typing import Any

from ..energies import GaussianMixture
from ..errors import InputError
from ..residual import Residual

__all__ = ["PRESETS", "paper_settings"]

PRESETS = {"cifar10": 1024, "cifar100": 1024, "imagenet": 2048}
"""The width of the residual's hidden layers; all else of the text is the same for the three."""
STEPS = {"cifar10": (40, 1, 50), "cifar100": (20, 20, 200), "imagenet": (10, 0, 40)}
"""Langevin steps of the released code: of the two Gaussian mixtures and of the energy of the logits."""
LAMBDAS = {"cifar10": (10.0, 10.0, 0.1), "cifar100": (20.0, 20.0, 1.0), "imagenet": (20.0, 20.0, 20.0)}
"""λ likewise; of ImageNet the code has 10 to 40, and nothing here says which prior has which."""


def paper_settings(name: str, settings: str = "text") -> dict[str, Any]:
    """The arguments of HEAT; docs/paper.md names what the paper and the notes on its code leave open."""
    if name not in PRESETS:
        raise InputError(f"There is no preset {name!r}. There are {', '.join(PRESETS)}.")
    if settings not in ("text", "released"):
        raise InputError(f"There are no settings {settings!r} of the paper. There are text and released.")
    return of_the_text(name) if settings == "text" else of_the_code(name)


def of_the_text(name: str) -> dict[str, Any]:
    """Section 3 and appendix B of the paper."""

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
            coarse=True,
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


def of_the_code(name: str) -> dict[str, Any]:
    """What the released code does where the text says otherwise, or nothing."""
    large = name == "imagenet"
    names = ("gmm[avg]", "gmm[std]", "energy")

    def residual(prior: str) -> Residual:
        logits, which = prior == "energy", names.index(prior)
        steps = STEPS[name][which]
        moves = ((2e-4, 2e-5), (1e-3, 1e-4)) if name == "cifar100" else ((1e-4, 1e-5), (5e-3, 5e-4))
        step, noise = ((0.1, 0.01), (0.1, 0.01)) if logits else moves
        temperatures = (5e3, 5e2) if large else (1e3, 1.0)
        return Residual(
            lam=LAMBDAS[name][which],
            temperature=temperatures[logits],
            hidden=PRESETS[name],
            depth=14 if large else 6,
            tied=not large,
            bounded=False,
            whiten=False,
            steps=steps,
            step=step,
            noise=noise,
            decay="quadratic",
            coarse=True,
            start="noise" if logits else "prior",
            keep_starts=steps > 0,
            widen=(1.0, 2.0) if large and not logits else (1.0, 1.0),
            shared=False,
            epochs=8 if large else 20,
            batch=256 if logits else 1024,
            lr=1e-5,
            betas=(0.0, 0.999),
            anneal=False,
            drop_after=None if large else 10,
            patience=1.0,
        )

    mixtures = (GaussianMixture(frequencies=True), GaussianMixture(("std",), frequencies=True))
    return {
        "priors": (*mixtures, "energy"),
        "residual": {prior: residual(prior) for prior in names},
        "standardise": "batch",
    }
