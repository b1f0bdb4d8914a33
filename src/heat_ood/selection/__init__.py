"""Choosing by ID data alone: rules of composition, and how far a residual may go, judged by tasks made of it."""

from ._bounds import BOUNDS as BOUNDS
from ._bounds import ODDS as ODDS
from ._bounds import compare_bounds
from ._compare import Comparison, Verdict, compare
from ._rules import RULES as RULES
from ._rules import Rule as Rule
from ._rules import family_weights as family_weights

__all__ = ["Comparison", "Verdict", "compare", "compare_bounds"]
