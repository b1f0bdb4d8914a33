"""Text as it can stand in a cell of a CSV file."""

from __future__ import annotations

from typing import Any

__all__ = ["sheet_cell"]

BEGINNINGS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""What makes a spreadsheet read text as a formula."""


def sheet_cell(value: Any) -> Any:
    """Text that a spreadsheet would run as a formula gets an apostrophe before it; numbers stay numbers.

    Example:
        >>> sheet_cell("=HYPERLINK(1)"), sheet_cell(-0.5), sheet_cell("svhn")
        ("'=HYPERLINK(1)", -0.5, 'svhn')
    """
    return f"'{value}" if isinstance(value, str) and value.lstrip(" ").startswith(BEGINNINGS) else value
