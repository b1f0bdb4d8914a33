"""The paper's experiments: suites, data sets, results, tables."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .backbone import build_backbone
    from .benchmark import run_benchmark
    from .paper import paper_costs, paper_doubts, paper_entries
    from .readers import MissingData, SetSpec, open_set
    from .results import Cost, Curve, Entry, Missing, Picture, Results, Run
    from .suites import Backbone, InDistribution, Suite, Variant, suite
    from .trained import Trained
    from .training import TrainingRecipe, train_backbone

__all__ = [
    "Backbone",
    "Cost",
    "Curve",
    "Entry",
    "InDistribution",
    "Missing",
    "MissingData",
    "Picture",
    "Results",
    "Run",
    "SetSpec",
    "Suite",
    "Trained",
    "TrainingRecipe",
    "Variant",
    "build_backbone",
    "open_set",
    "paper_costs",
    "paper_doubts",
    "paper_entries",
    "run_benchmark",
    "suite",
    "train_backbone",
]

HOMES = {
    "backbone": ("build_backbone",),
    "benchmark": ("run_benchmark",),
    "paper": ("paper_costs", "paper_doubts", "paper_entries"),
    "readers": ("MissingData", "SetSpec", "open_set"),
    "results": ("Cost", "Curve", "Entry", "Missing", "Picture", "Results", "Run"),
    "suites": ("Backbone", "InDistribution", "Suite", "Variant", "suite"),
    "trained": ("Trained",),
    "training": ("TrainingRecipe", "train_backbone"),
}


def __getattr__(name: str) -> Any:
    """Public names are imported when they are first used, so that results can be read without torch."""
    for module, names in HOMES.items():
        if name in names:
            value = globals()[name] = getattr(import_module(f".{module}", __name__), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
