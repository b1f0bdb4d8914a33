"""What the tests of the benchmarks share."""

from __future__ import annotations

import pytest

from quick import hurry


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Residuals that train for one epoch, wherever a default is used."""
    hurry(monkeypatch.setattr)
