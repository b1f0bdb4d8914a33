"""Image sets in the layouts that their authors distribute."""

from .opening import open_set
from .spec import READERS, MissingData, SetSpec

__all__ = ["READERS", "MissingData", "SetSpec", "open_set"]
