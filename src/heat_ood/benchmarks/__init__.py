"""The paper's experiments: suites of data sets, the jobs that run on them, and the numbers that the paper printed."""

from . import backbone, digits
from ._benchmark import CACHE as CACHE
from ._benchmark import run_benchmark
from ._paper import paper_costs, paper_doubts, paper_entries
from ._readers import MissingData, SetSpec, open_set
from ._suites import Backbone, InDistribution, Suite, Variant, suite, suites
from ._trained import Trained
from ._training import TrainingRecipe, train_backbone

__all__ = [
    "Backbone",
    "InDistribution",
    "MissingData",
    "SetSpec",
    "Suite",
    "Trained",
    "TrainingRecipe",
    "Variant",
    "backbone",
    "digits",
    "open_set",
    "paper_costs",
    "paper_doubts",
    "paper_entries",
    "run_benchmark",
    "suite",
    "suites",
    "train_backbone",
]
