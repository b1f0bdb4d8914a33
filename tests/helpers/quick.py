"""HEAT with residuals that train for one epoch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from heat_ood import Residual
from heat_ood.benchmarks import _benchmark as benchmark
from heat_ood.benchmarks import _experiments as experiments
from heat_ood.benchmarks import _forms as forms
from heat_ood.heat import _choice as recipe

__all__ = ["FAST", "fast", "hurry"]

CHANGES: dict[str, Any] = {"epochs": 1, "hidden": 8, "depth": 3, "batch": 64}
FAST = Residual(**CHANGES)


def fast(**changes: Any) -> Residual:
    """A residual with other settings, as quick."""
    return replace(FAST, **changes)


def hurry(put: Callable[[Any, str, Any], None] = setattr) -> None:
    """Put such residuals wherever HEAT's default or a benchmark makes one."""
    put(recipe, "AGAINST_CONTRAST", replace(recipe.AGAINST_CONTRAST, **CHANGES))
    for module in (recipe, benchmark, experiments, forms):
        put(module, "Residual", fast)
