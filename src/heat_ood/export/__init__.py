"""A guard as one file: pixels in; logits, score, p-value and decision out, wherever the file is opened."""

from ._opened import Exported, load
from ._opened import facts_in as facts_in
from ._opened import is_exported as is_exported
from ._writing import export

__all__ = ["Exported", "export", "load"]
