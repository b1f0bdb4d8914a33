"""Choosing by ID data alone: two tasks made of it, the rules that compete, and who wins."""

from ._bounds import BOUNDS, ODDS, compare_bounds
from ._compare import Comparison, Verdict, compare
from ._rules import RULES, Rule

__all__ = ["BOUNDS", "ODDS", "RULES", "Comparison", "Rule", "Verdict", "compare", "compare_bounds"]
