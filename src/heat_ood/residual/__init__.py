"""Residuals: the network, the Langevin sampler, the training loop, and the hybrid of a prior and its residual."""

from .checkpoint import Checkpoint
from .ebm import EnergyBasedModel
from .hybrid import Hybrid
from .langevin import langevin
from .network import Network
from .settings import Residual

__all__ = ["Checkpoint", "EnergyBasedModel", "Hybrid", "Network", "Residual", "langevin"]
