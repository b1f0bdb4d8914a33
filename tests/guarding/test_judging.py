"""One way to ask for a verdict: what a judge says is what its guard says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from heat_ood import HEAT, Features, InputError, create
from heat_ood.guarding import LiveJudge
from serving_data import Pictures, make_guard


@pytest.mark.parametrize("detector", [HEAT(residual=None), create("knn"), create("msp")])
def test_a_judge_says_what_its_guard_says(detector: Any) -> None:
    guard, new = make_guard(detector), Pictures(7, 2)
    judge = LiveJudge(guard)
    assert judge.preprocessing is not None
    pixels = np.stack([judge.preprocessing.pixels(Image.fromarray(p)) for p in new.pixels])
    said, told = judge.judge(pixels), guard(torch.stack([x for x, _ in new]))
    assert pixels.dtype == np.uint8
    np.testing.assert_array_equal(said.logits, told.logits)
    np.testing.assert_allclose(said.score, told.score, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(said.p_value, told.p_value)
    assert judge.classes == Pictures.classes
    assert judge.about["calibration"] == {"samples": 300, "smallest": 300, "per_class": False}


def test_terms_and_their_composition_give_the_score() -> None:
    judge = LiveJudge(make_guard(HEAT(("gmm", "gmm-std", "energy"), weights=(1, 2, 3), residual=None)))
    said = judge.judge(np.random.default_rng(3).integers(0, 256, (5, 12, 12, 3), dtype=np.uint8))
    how = judge.about["composition"]["terms"]
    terms = [t["weight"] * (said.energies[f"prior/{n}"] - t["centre"]) / t["spread"] for n, t in how.items()]
    np.testing.assert_allclose(sum(terms), said.score, rtol=1e-4, atol=1e-5)


def test_what_counts_by_its_excess_is_told_too() -> None:
    priors = {"weights": (1, 2, 3), "excess": ("gmm", "gmm-std"), "residual": None}
    judge = LiveJudge(make_guard(HEAT(("gmm", "gmm-std", "energy"), **priors)))
    said = judge.judge(np.random.default_rng(3).integers(0, 256, (5, 12, 12, 3), dtype=np.uint8))
    how = judge.about["composition"]
    terms = {n: (said.energies[f"prior/{n}"] - t["centre"]) / t["spread"] for n, t in how["terms"].items()}
    bend, together = how["excess"], (terms["gmm"] + 2 * terms["gmm-std"]) / 3
    assert bend["terms"] == ["gmm", "gmm-std"]
    beyond = np.logaddexp(0, (together - bend["centre"]) / bend["spread"])
    np.testing.assert_allclose((beyond + terms["energy"]) / 2, said.score, rtol=1e-4, atol=1e-5)


def test_features_are_judged_as_images_are() -> None:
    guard = make_guard(create("gmm"))
    images = torch.rand(4, 3, 12, 12)
    _, features = guard.read(images)
    said = LiveJudge(guard.detector).judge_features({"avg": features.avg.numpy()})
    np.testing.assert_array_equal(said.p_value, guard(images).p_value)


def test_within_its_predicted_class() -> None:
    parts = [Features(logits=torch.randn(n, 3, generator=torch.Generator().manual_seed(n))) for n in (90, 200, 9)]
    detector = create("energy").fit(parts[0]).calibrate(parts[1], per_class=True)
    said = LiveJudge(detector).judge_features({"logits": parts[2].logits.numpy()})
    np.testing.assert_array_equal(said.p_value, detector.p_value(parts[2]))


def test_what_it_cannot_judge_it_says() -> None:
    judge = LiveJudge(make_guard(create("gmm")).detector)
    with pytest.raises(InputError, match="judges features, and images were given"):
        judge.judge(np.zeros((1, 12, 12, 3), np.uint8))
    with pytest.raises(InputError, match="avg is missing"):
        judge.judge_features({"std": np.zeros((1, 8), np.float32)})
