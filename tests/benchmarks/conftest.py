"""What the tests of the benchmarks share."""

from __future__ import annotations

import pytest

from heat_ood import HEAT, Residual
from heat_ood.benchmarks import experiments


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Residuals that train for one epoch, wherever HEAT's default is used."""
    fast = Residual(epochs=1, hidden=8, depth=3, batch=64)
    defaults = tuple(fast if isinstance(value, Residual) else value for value in HEAT.__init__.__defaults__ or ())
    monkeypatch.setattr(HEAT.__init__, "__defaults__", defaults)
    monkeypatch.setattr(experiments, "Residual", lambda **changes: Residual(**{**fast.to_dict(), **changes}))
