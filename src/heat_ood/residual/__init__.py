"""Residuals: the network, the Langevin sampler, the training loop, and the hybrid of a prior and its residual."""

from ._checkpoint import Checkpoint as Checkpoint
from ._denoising import Denoising as Denoising
from ._ebm import EnergyBasedModel
from ._hybrid import Hybrid
from ._langevin import langevin
from ._network import Network as Network
from ._settings import Residual

__all__ = ["EnergyBasedModel", "Hybrid", "Residual", "langevin"]
