"""A detector on one ID and several OOD sets: a row for each set and their average, as objects, Markdown, JSON, CSV."""

from ._compare import compare
from ._evaluation import AVERAGE as AVERAGE
from ._evaluation import CONVENTION as CONVENTION
from ._evaluation import HEADERS as HEADERS
from ._evaluation import Evaluation, Row
from ._markdown import escape as escape
from ._markdown import markdown as markdown
from ._scoring import Scorer, evaluate, evaluate_scores

__all__ = ["Evaluation", "Row", "Scorer", "compare", "evaluate", "evaluate_scores"]
