"""How well scores tell out-of-distribution samples from in-distribution ones; a score is higher = more OOD."""

from ._metrics import METRICS, Metrics, aupr_in, aupr_out, auroc, bootstrap, fpr_at_95_id, fpr_at_95_ood, summary
from ._metrics import Scores as Scores
from ._metrics import as_array as as_array
from ._metrics import as_scores as as_scores
from ._metrics import at_least_95 as at_least_95
from ._metrics import percentile_intervals as percentile_intervals
from ._metrics import replicates as replicates

__all__ = [
    "METRICS",
    "Metrics",
    "aupr_in",
    "aupr_out",
    "auroc",
    "bootstrap",
    "fpr_at_95_id",
    "fpr_at_95_ood",
    "summary",
]
