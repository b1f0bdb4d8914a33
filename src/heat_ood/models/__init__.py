"""Models by name: ``timm:NAME``, or ``package.module:function`` that returns one."""

from ._functions import called as called
from ._loading import load_model, new_model

__all__ = ["load_model", "new_model"]
