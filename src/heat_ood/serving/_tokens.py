"""Who may ask: a token in a file or in the environment, compared in constant time."""

from __future__ import annotations

import hmac
import os
from collections.abc import Iterable
from pathlib import Path

from ..errors import InputError

__all__ = ["VARIABLE", "borne", "read_token"]

VARIABLE = "HEAT_OOD_TOKEN"
LONGEST = 4096
LEAST = 16
"""Characters of a token that is not guessed."""


def read_token(file: Path | None) -> str | None:
    """The token of a file, or of the environment; None where there is none. It never stands on a command line."""
    if file is None and VARIABLE not in os.environ:
        return None
    where = f"The environment variable {VARIABLE}" if file is None else str(file)
    if file is None:
        token = os.environ[VARIABLE].strip()
    else:
        with file.open("rb") as stream:
            token = stream.read(LONGEST + 1).decode("latin-1").strip()
    if not LEAST <= len(token) <= LONGEST or not token.isascii() or not token.isprintable() or " " in token:
        raise InputError(
            f"{where} holds no token: {LEAST} to {LONGEST:,} visible ASCII characters in one line. "
            "Make one: openssl rand -hex 32."
        )
    return token


def borne(headers: Iterable[tuple[bytes, bytes]], token: str) -> bool:
    """Whether a request bears the token: ``Authorization: Bearer …``, once."""
    given = [value for name, value in headers if name == b"authorization"]
    scheme, _, value = (given[0] if len(given) == 1 else b"").partition(b" ")
    return hmac.compare_digest(value.strip(), token.encode("ascii")) and scheme.lower() == b"bearer"
