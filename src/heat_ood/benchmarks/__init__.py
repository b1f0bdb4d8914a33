"""The paper's experiments: suites of data sets, the jobs that run on them, and the numbers that the paper printed."""

from ..deprecation import renamed_names
from ..results import Cost, Curve, Entry, Missing, Picture, Results, Run
from . import backbone, digits
from ._benchmark import CACHE as CACHE
from ._benchmark import machine as machine
from ._benchmark import run_benchmark
from ._paper import paper_costs as paper_costs
from ._paper import paper_doubts as paper_doubts
from ._paper import paper_entries as paper_entries
from ._readers import MissingData, SetSpec, open_set
from ._reading import suite, suites
from ._suites import Backbone as Backbone
from ._suites import InDistribution as InDistribution
from ._suites import Suite
from ._suites import Variant as Variant
from ._trained import Trained as Trained
from ._training import TrainingRecipe, train_backbone

__all__ = [
    "MissingData",
    "SetSpec",
    "Suite",
    "TrainingRecipe",
    "backbone",
    "digits",
    "open_set",
    "run_benchmark",
    "suite",
    "suites",
    "train_backbone",
]

_MOVED = {cls.__name__: cls for cls in (Cost, Curve, Entry, Missing, Picture, Results, Run)}
_MOVED["build_backbone"] = backbone.build_backbone  # type: ignore[assignment]
del Cost, Curve, Entry, Missing, Picture, Results, Run
__getattr__ = renamed_names(__name__, _MOVED)
