"""Text as it can stand in a cell of a CSV file."""

from __future__ import annotations

from typing import Any

__all__ = ["sheet_cell"]

BEGINNINGS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""What makes a spreadsheet read text as a formula."""


def sheet_cell(value: Any) -> Any:
    """Text that a spreadsheet would run as a formula gets an apostrophe before it; numbers stay numbers.

    A return of the carriage, which Python's ``csv`` does not put in quotes and so ends a row, stands as its escape.

    Example:
        >>> sheet_cell("=HYPERLINK(1)"), sheet_cell(-0.5), sheet_cell("svhn")
        ("'=HYPERLINK(1)", -0.5, 'svhn')
    """
    if not isinstance(value, str):
        return value
    formula = value.lstrip(" ").startswith(BEGINNINGS)
    return ("'" if formula else "") + value.replace("\r", "\\r")
