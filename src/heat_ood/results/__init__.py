"""What an experiment found: results, the tables made of them, and what they say."""

from ..evaluation import Curve, Picture
from ._findings import FULL_NAMES as FULL_NAMES
from ._findings import SHOWN as SHOWN
from ._findings import Column as Column
from ._findings import Duel as Duel
from ._findings import Loss as Loss
from ._findings import champion as champion
from ._findings import columns as columns
from ._findings import duel as duel
from ._findings import group_title as group_title
from ._findings import judged as judged
from ._findings import losses as losses
from ._findings import percent as percent
from ._findings import plain_composition as plain_composition
from ._findings import points as points
from ._results import Cost, Entry, Mean, Missing, Results, Run
from ._results import better as better
from ._results import read_results as read_results
from ._tables import Value as Value
from ._tables import cell as cell
from ._tables import grid as grid
from ._tables import interval_of as interval_of
from ._tables import markdown_style as markdown_style
from ._tables import title_of as title_of

__all__ = ["Cost", "Curve", "Entry", "Mean", "Missing", "Picture", "Results", "Run"]
