"""Choosing by ID data alone: two tasks made of it, the rules that compete, and who wins."""

from .bounds import BOUNDS, compare_bounds
from .compare import Comparison, Verdict, compare
from .rules import RULES, Rule

__all__ = ["BOUNDS", "RULES", "Comparison", "Rule", "Verdict", "compare", "compare_bounds"]
