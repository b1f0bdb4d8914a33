"""Equal samples are equal whatever the batch that they are scored in: ties do not break the false-alarm rate."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from heat_ood import HEAT, Energy, Extractor
from heat_ood.energies import Calibration
from heat_ood.features import Features
from method_data import CASES, Case, fitted

BATCHES = (1, 3, 64)


@pytest.mark.parametrize("method", CASES)
@pytest.mark.parametrize("prototypes", [1, 10])
def test_copies_of_a_sample_are_never_flagged_more_often_than_asked_for(method: str, prototypes: int) -> None:
    """With one prototype no alarm is right; with ten, the rate over many draws is at most the one asked for."""
    detector = fitted(method)
    pool, rng = Case(method).data(prototypes, seed=5), np.random.default_rng(0)
    alarms, n, fpr, rounds = 0, 199, 0.01, 3 if Case(method).beyond else 12
    for _ in range(rounds):
        detector.calibrate(pool[rng.integers(prototypes, size=n)])
        drawn = rng.integers(prototypes, size=40)
        batches = Counter(tuple(drawn[i : i + size]) for size in BATCHES for i in range(0, 40, size))
        for batch, times in batches.items():  # of equal batches one is judged
            alarms += times * int((detector.p_value(pool[np.array(batch)]) <= fpr).sum())
    asked = fpr * rounds * 40 * len(BATCHES)
    assert alarms == 0 if prototypes == 1 else alarms <= asked + 4 * np.sqrt(asked)


@pytest.mark.parametrize("method", CASES)
def test_the_resolution_covers_what_a_batch_changes_and_is_fine(method: str, tmp_path: Path) -> None:
    detector = fitted(method)
    held = Case(method).data(400, seed=6)
    detector.calibrate(held)
    assert detector.calibration is not None
    scores = torch.as_tensor(detector.score(held))
    alone = torch.cat([torch.as_tensor(detector.score(held[i : i + 1])) for i in range(60)])
    known, spread = detector.calibration, float(scores.std())
    resolution = known.resolution[torch.searchsorted(known.scores, scores[:60])]
    assert ((alone - scores[:60]).abs() <= resolution / 2).all()
    assert float(known.resolution.median()) <= 0.002 * spread, "it costs no power"
    detector.save(tmp_path / "d")
    again = Case(method).attach(Energy.load(tmp_path / "d"))
    assert again.calibration is not None
    assert torch.equal(again.calibration.limits, known.limits)
    assert torch.equal(torch.as_tensor(again.p_value(held)), torch.as_tensor(detector.p_value(held)))


def test_a_guard_alone_and_in_batches() -> None:
    """Calibrated on copies of an image in a batch, the image alone is none the less one of them."""
    torch.manual_seed(0)
    body = (nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    extractor = Extractor(nn.Sequential(*body, nn.Linear(64, 4)), layers=("1",))
    train = extractor.extract([(torch.rand(100, 3, 12, 12), torch.arange(100) % 4)] * 2, progress=False)
    image, flagged = torch.rand(20, 3, 12, 12), 0
    detector = HEAT(residual=None).fit(train, progress=False)
    for x in image:
        guard = extractor.guard(detector.calibrate(extractor(x.expand(199, 3, 12, 12))))
        flagged += int(guard(x[None]).p_value <= 0.01) + int((guard(x.expand(7, 3, 12, 12)).p_value <= 0.01).sum())
    assert flagged == 0


@pytest.mark.parametrize("per_class", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_threshold_and_p_value_agree_at_the_resolution(dtype: torch.dtype, per_class: bool) -> None:
    scores = torch.linspace(-3, 5, 100, dtype=dtype)
    groups = torch.arange(100) % 2 if per_class else None
    calibration = Calibration(scores, groups, 2 if per_class else 1, resolution=0.3)
    near = torch.cat([scores + 0.3, scores, (scores + 0.3).nextafter(torch.tensor(9, dtype=dtype))])
    asked = torch.zeros(len(near), dtype=torch.long) if per_class else None
    threshold = calibration.threshold(0.1)
    limit = threshold[0] if isinstance(threshold, torch.Tensor) else threshold
    assert torch.equal(calibration.p_value(near, asked) <= 0.1, near > float(limit))


def test_exact_scores_within_half_the_resolution_never_have_a_smaller_p_value() -> None:
    generator = torch.Generator().manual_seed(0)
    exact = torch.randint(8, (200,), generator=generator).double()
    noise = lambda n: (torch.rand(n, generator=generator, dtype=torch.float64) - 0.5) * 1e-3  # noqa: E731
    test = torch.arange(-1.0, 9, dtype=torch.float64)
    right = Calibration(exact).p_value(test)
    found = Calibration(exact + noise(200), resolution=1e-3).p_value(test + noise(10))
    assert torch.equal(found, right)


def test_features_change_in_their_last_digits_alone() -> None:
    features = Features(avg=torch.tensor([[1.0, 0.0], [3.0, 0.0]]), labels=[0, 1])
    moved = features.changed(0.1, torch.Generator().manual_seed(0))
    assert moved.avg is not None
    difference = moved.avg - features.avg
    assert (difference[:, 1] == 0).all(), "a channel that is always zero stays so"
    assert 0 < float(difference.abs().max()) <= 0.2
