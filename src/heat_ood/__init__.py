"""Out-of-distribution detection for frozen classifiers; a score is an energy: higher = more out-of-distribution."""

from .detector import HEAT
from .energies import Energy, Prior, create, methods
from .errors import FormatError, HeatError, InputError, NotFittedError
from .evaluation import Evaluation, evaluate
from .features import Extractor, Features
from .residual import Residual

__all__ = [
    "HEAT",
    "Energy",
    "Evaluation",
    "Extractor",
    "Features",
    "FormatError",
    "HeatError",
    "InputError",
    "NotFittedError",
    "Prior",
    "Residual",
    "create",
    "evaluate",
    "methods",
]
__version__ = "0.1.0"
