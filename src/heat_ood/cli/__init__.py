"""The command line: parses, calls, prints."""

from ._app import app, main

__all__ = ["app", "main"]
