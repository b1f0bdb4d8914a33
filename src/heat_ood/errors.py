"""What the library raises: each error says the cause, then what the reader can do."""

__all__ = ["FormatError", "HeatError", "InputError", "NotFittedError", "Notice"]


class HeatError(Exception):
    """Anything that heat-ood raises on purpose."""


class InputError(HeatError, ValueError):
    """An argument or a feature set that cannot be used as it is."""


class NotFittedError(HeatError, RuntimeError):
    """A score before ``fit``, or a decision before ``calibrate``."""


class FormatError(HeatError, ValueError):
    """A file that is damaged, incomplete, foreign, or of a newer version."""


class Notice(Warning):
    """What a default did without: nothing is wrong, but there could be more."""
