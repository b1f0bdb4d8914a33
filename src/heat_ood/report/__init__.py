"""Pictures of results; reads scores and metrics only."""

from .histograms import panels, score_histograms

__all__ = ["panels", "score_histograms"]
