"""Files: written whole or not at all, with a header that says what they are; values as JSON, and strictly back."""

from ._format import Format
from ._values import frame, plain, restored
from ._writing import is_part, locked, replacing, sweep, write

__all__ = ["Format", "frame", "is_part", "locked", "plain", "replacing", "restored", "sweep", "write"]
