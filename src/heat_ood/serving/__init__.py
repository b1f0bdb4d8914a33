"""A detector as a service: scores and verdicts over HTTP, a watch on the stream, and a page."""

from ._doors import HOST as HOST
from ._doors import PORT as PORT
from ._doors import create_app, serve
from ._doors import is_loopback as is_loopback
from ._drift import Drift as Drift
from ._settings import Settings
from ._tokens import read_token as read_token

__all__ = ["Settings", "create_app", "serve"]
