"""Where features come from: hook a model, pool its maps, store and stream the result."""

from .distortions import KINDS
from .extractor import Extractor
from .features import Array, Features, Head, Layer
from .guard import Guard, Guarded
from .moments import Moments
from .spaces import Space

__all__ = ["KINDS", "Array", "Extractor", "Features", "Guard", "Guarded", "Head", "Layer", "Moments", "Space"]
