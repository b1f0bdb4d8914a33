"""Guards that are exported once, and a way to set what a file says beside what its guard says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from export_data import SMALL, guarded, tied
from heat_ood import HEAT, Features
from heat_ood.export import Exported, export
from heat_ood.features import Guard
from heat_ood.guarding import Judged, LiveJudge
from method_data import samples


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Guard, Exported]:
    """HEAT before a small network, and its file."""
    guard = guarded(HEAT(residual=SMALL), contrast=False)
    return guard, export(guard, tmp_path_factory.mktemp("small") / "guard.onnx")


@pytest.fixture(scope="session")
def stored() -> tuple[Any, Features]:
    """A calibrated detector, and features of its own."""
    detector = HEAT(("energy", "gmm@layer3"), residual=None).fit(samples()).calibrate(samples(100, seed=1))
    return detector, samples(40, seed=2)


@pytest.fixture(scope="session")
def alike() -> Callable[..., None]:
    """What a file says is what its guard says, score, p-value, decision and every term.

    Terms are compared by their spread ``among`` the samples of another judgement, where there is one sample alone.
    """

    def check(found: Judged, live: Judged, judge: LiveJudge, fpr: float = 0.05, among: Judged | None = None) -> None:
        calibration = judge.calibration
        assert calibration is not None
        assert live.p_value is not None
        assert found.p_value is not None
        spread = float(calibration.scores.double().std(correction=0))
        off = np.abs(found.score.astype(float) - live.score) / spread
        assert off.max() <= 1e-4
        near = tied(live.score, calibration.limits.numpy(), 1e-4 * spread)
        assert near.mean() < 0.2
        np.testing.assert_array_equal(found.p_value[~near], live.p_value[~near])
        np.testing.assert_array_equal((found.p_value <= fpr)[~near], (live.p_value <= fpr)[~near])
        assert found.energies.keys() == live.energies.keys()
        for name, values in live.energies.items():
            scale = max(float((live if among is None else among).energies[name].std()), 1e-6)
            np.testing.assert_allclose(found.energies[name] / scale, values / scale, atol=1e-3, rtol=1e-5, err_msg=name)
        if live.logits is not None:
            np.testing.assert_allclose(found.logits, live.logits, atol=1e-4, rtol=1e-4)

    return check


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "guard.onnx"
