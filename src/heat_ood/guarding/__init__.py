"""From images to a calibrated detector in front of its model, and back from the folder that keeps them."""

from ._folder import DETECTOR as DETECTOR
from ._folder import GUARD_FILE as GUARD_FILE
from ._folder import KEPT as KEPT
from ._folder import WEIGHTS as WEIGHTS
from ._folder import load
from ._folder import read_record as read_record
from ._protect import protect
from ._protect import readable as readable

__all__ = ["load", "protect"]
