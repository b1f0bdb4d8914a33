"""What the tests of the benchmarks share."""

from __future__ import annotations

import pytest

from heat_ood import HEAT, Residual
from heat_ood.benchmarks import experiments
from quick import FAST, fast_defaults


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Residuals that train for one epoch, wherever HEAT's default is used."""
    monkeypatch.setattr(HEAT.__init__, "__defaults__", fast_defaults())
    monkeypatch.setattr(experiments, "Residual", lambda **changes: Residual(**{**FAST.to_dict(), **changes}))
