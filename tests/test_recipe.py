"""What HEAT is made of where it is not told."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from heat_ood import Features, InputError, Residual
from heat_ood.energies import EnergyLogits
from heat_ood.energies.registry import create_prior
from heat_ood.recipe import (
    AGAINST_CONTRAST,
    ONE_LAYER,
    PAPER_PRIORS,
    SHARES,
    default_priors,
    default_residual,
    earlier_layers,
)


def some(seed: int, d: int = 5, n: int = 20) -> Tensor:
    return torch.rand(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


Z, S, ONE, TWO = some(0), some(1), some(2, 3), some(3, 4)
HEAD = (some(4)[:3], None)
LAYERS = {"one": (ONE, ONE + 1), "two": (TWO, TWO + 1)}
DEEP, ALONE = SHARES["densities"], ONE_LAYER["densities"]

CASES: dict[str, tuple[dict[str, Any], dict[str, float], tuple[str, ...]]] = {
    "everything": (
        {"avg": Z, "std": S, "head": HEAD, "layers": LAYERS},
        {
            "energy": SHARES["energy"],
            "relative-gmm-joint": SHARES["relative"],
            "gmm-joint@one": DEEP / 3,
            "gmm-joint@two": DEEP / 3,
            "gmm-joint": DEEP / 3,
        },
        (),
    ),
    "no std": (
        {"avg": Z, "head": HEAD, "layers": {"one": ONE}},
        {"energy": SHARES["energy"], "relative-gmm": SHARES["relative"], "gmm@one": DEEP / 2, "gmm": DEEP / 2},
        ("no std",),
    ),
    "no logits": (
        {"avg": Z, "std": S, "layers": LAYERS},
        {
            "relative-gmm-joint": SHARES["relative"],
            "gmm-joint@one": DEEP / 3,
            "gmm-joint@two": DEEP / 3,
            "gmm-joint": DEEP / 3,
        },
        ("no logits",),
    ),
    "no layers": (
        {"avg": Z, "std": S, "head": HEAD},
        {"energy": ONE_LAYER["energy"], "relative-gmm-joint": ONE_LAYER["relative"], "gmm-joint": ALONE},
        ("no earlier layers",),
    ),
    "the last layer once more": (
        {"avg": Z, "std": S, "head": HEAD, "layers": LAYERS | {"last": (Z, S)}},
        {
            "energy": SHARES["energy"],
            "relative-gmm-joint": SHARES["relative"],
            "gmm-joint@one": DEEP / 3,
            "gmm-joint@two": DEEP / 3,
            "gmm-joint": DEEP / 3,
        },
        (),
    ),
    "only the last layer once more": (
        {"avg": Z, "std": S, "head": HEAD, "layers": {"last": (Z, S)}},
        {"energy": ONE_LAYER["energy"], "relative-gmm-joint": ONE_LAYER["relative"], "gmm-joint": ALONE},
        ("no earlier layers",),
    ),
    "layers without std": (
        {"avg": Z, "std": S, "head": HEAD, "layers": {"one": ONE, "two": (TWO, TWO + 1), "three": (None, ONE)}},
        {
            "energy": SHARES["energy"],
            "relative-gmm-joint": SHARES["relative"],
            "gmm@one": DEEP / 4,
            "gmm-joint@two": DEEP / 4,
            "gmm-std@three": DEEP / 4,
            "gmm-joint": DEEP / 4,
        },
        (),
    ),
    "only logits": (
        {"logits": some(5, 3)},
        {"energy": ONE_LAYER["energy"]},
        ("no std", "no earlier layers"),
    ),
    "only avg": (
        {"avg": Z},
        {"relative-gmm": ONE_LAYER["relative"], "gmm": ALONE},
        ("no logits", "no std", "no earlier layers"),
    ),
    "only std": ({"std": S}, {"gmm-std": ALONE}, ("no logits", "no earlier layers")),
    "only an earlier layer": ({"layers": {"one": ONE}}, {"gmm@one": ALONE}, ("no logits", "no std")),
}


@pytest.mark.parametrize("case", CASES)
def test_priors_and_weights_follow_from_what_there_is(case: str) -> None:
    columns, weights, lacking = CASES[case]
    recipe = default_priors(Features(**columns))
    assert dict(zip(recipe.priors, recipe.weights, strict=True)) == pytest.approx(weights)
    assert list(recipe.priors) == list(weights), "in this order"
    assert recipe.lacking == lacking


@pytest.mark.parametrize("case", CASES)
def test_every_prior_can_be_made_and_read(case: str) -> None:
    features = Features(**CASES[case][0])
    for name in default_priors(features).priors:
        assert set(create_prior(name).reads) <= features.available


def test_features_of_nothing_cannot_be_made() -> None:
    """So that there is always something to work with."""
    with pytest.raises(InputError, match="at least one of avg, std, logits or layers"):
        Features(labels=torch.arange(3))


@pytest.mark.parametrize("change", ["value", "width", "late"])
def test_a_layer_that_differs_from_the_last_is_an_earlier_one(change: str) -> None:
    other = Z.clone()
    if change == "value":
        other[0, 0] += 0.01
    if change == "width":
        other = torch.cat([other, other], 1)
    if change == "late":  # the first samples tell, and all of them would have to be read to tell more
        other[10:] += 1
    found = earlier_layers(Features(avg=Z, layers={"one": ONE, "other": other, "same": Z.clone()}))
    assert found == (["one"] if change == "late" else ["one", "other"])


def test_the_residual_of_the_default() -> None:
    names = ("energy", "relative-gmm", "gmm")
    assert default_residual(None, names, contrast=True) is AGAINST_CONTRAST
    assert default_residual(None, names, contrast=False) == {"energy": Residual()}
    assert default_residual(None, names[1:], contrast=False) == {"relative-gmm": Residual()}


@pytest.mark.parametrize("priors", [PAPER_PRIORS, (EnergyLogits(),)])
def test_the_residual_of_priors_that_are_named(priors: tuple[Any, ...]) -> None:
    assert default_residual(priors, ("gmm",), contrast=False) == Residual()
    assert default_residual(priors, ("gmm",), contrast=True) is AGAINST_CONTRAST


def test_contrast_is_all_that_its_residual_learns_from() -> None:
    assert AGAINST_CONTRAST.joint
    assert AGAINST_CONTRAST.contrast_share == 1
    AGAINST_CONTRAST.check()
