"""Pictures of scores, and the report on results; knows those only."""

from ._histograms import panels, score_histograms
from ._html import report, write_report
from ._words import lost as lost
from ._words import summary as summary

__all__ = ["panels", "report", "score_histograms", "write_report"]
