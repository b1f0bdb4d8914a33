"""Pictures of scores, and the report on results; knows those only."""

from ._axes import corner as corner
from ._histograms import XLABEL as XLABEL
from ._histograms import draw as draw
from ._histograms import panels as panels
from ._histograms import score_histograms as score_histograms
from ._html import report, write_report
from ._style import INK as INK
from ._style import LEGEND as LEGEND
from ._style import dress as dress
from ._style import line_of as line_of
from ._style import plain as plain
from ._words import lost as lost
from ._words import summary as summary

__all__ = ["report", "write_report"]
