"""Residuals: the network, the Langevin sampler, the training loop, and the hybrid of a prior and its residual."""

from .checkpoint import Checkpoint
from .hybrid import Hybrid
from .langevin import langevin
from .network import Network
from .settings import Residual

__all__ = ["Checkpoint", "Hybrid", "Network", "Residual", "langevin"]
