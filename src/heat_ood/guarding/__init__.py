"""From images to a calibrated detector in front of its model, and back from the folder that keeps them."""

from ._folder import load as load
from ._judging import VERDICTS as VERDICTS
from ._judging import Judge as Judge
from ._judging import Judged as Judged
from ._judging import LiveJudge as LiveJudge
from ._judging import class_name as class_name
from ._judging import columns_judged as columns_judged
from ._protect import protect
from ._protect import readable as readable
from ._records import DETECTOR as DETECTOR
from ._records import GUARD_FILE as GUARD_FILE
from ._records import belongs as belongs
from ._records import read_record as read_record

__all__ = ["protect"]
