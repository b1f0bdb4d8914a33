"""From images to a calibrated detector in front of its model, and back from the folder that keeps them."""

from ._folder import load
from ._protect import protect
from ._protect import readable as readable
from ._records import DETECTOR as DETECTOR
from ._records import GUARD_FILE as GUARD_FILE
from ._records import belongs as belongs
from ._records import read_record as read_record

__all__ = ["load", "protect"]
