"""Pictures of scores, and the report on results; knows those only."""

from .histograms import panels, score_histograms
from .html import report, write_report

__all__ = ["panels", "report", "score_histograms", "write_report"]
