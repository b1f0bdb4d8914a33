"""Features and quick detectors for the tests of HEAT."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from heat_ood import HEAT, Features, Residual

__all__ = ["QUICK", "THREE", "Stop", "data", "fit", "pytestmark", "same"]

QUICK = Residual(epochs=2, hidden=16, batch=64, lr=1e-3)
THREE = ("gmm", "gmm-std", "energy")
pytestmark = pytest.mark.filterwarnings("ignore:The residual of:RuntimeWarning")  # a short training may be in vain


def data(n: int = 400, seed: int = 0, d: int = 6, classes: int = 3, dtype: torch.dtype = torch.float64) -> Features:
    """Classes on a curved sheet, so that a Gaussian is wrong about them."""
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % classes
    bend = torch.rand(n, 1, generator=g, dtype=torch.float64) * 3
    z = torch.cat([bend.sin() ** 2, bend.cos() ** 2, torch.rand(n, d - 2, generator=g, dtype=torch.float64)], 1)
    z = z + 2 * torch.eye(classes, d, dtype=torch.float64)[y]
    std = 0.5 + torch.rand(n, d - 1, generator=g, dtype=torch.float64) * (1 + y[:, None])
    layer = torch.rand(n, 4, generator=g, dtype=torch.float64) + y[:, None]
    weight = torch.randn(classes, d, generator=torch.Generator().manual_seed(99), dtype=torch.float64)
    weight += 4 * torch.eye(classes, d, dtype=torch.float64)
    return Features(
        avg=z.to(dtype),
        std=std.to(dtype),
        labels=y,
        head=(weight.to(dtype), None),
        layers={"block.1": (layer.to(dtype), layer.flip(1).to(dtype))},
    )


def fit(*args: Any, on: Features | None = None, contrast: Features | None = None, **settings: Any) -> HEAT:
    return HEAT(*args, **settings).fit(data() if on is None else on, contrast, progress=False)


def same(a: HEAT, b: HEAT) -> bool:
    one, other = a.state_dict(), b.state_dict()
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


class Stop:
    """Bars whose reports raise after some steps."""

    def __init__(self, after: int) -> None:
        self.left = after

    def __call__(self, enabled: bool = True) -> Stop:
        return self

    def __enter__(self) -> Stop:
        return self

    def __exit__(self, *error: object) -> None: ...

    def add(self, name: str) -> Any:
        def report(done: int, total: int, numbers: dict[str, float]) -> None:
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt

        return report
