"""Energies: functions from features to one number a sample, higher = more out-of-distribution."""

from .base import Energy, Prior
from .calibration import Calibration
from .composition import Composition, compose
from .ensemble import Ensemble
from .flat import Flat
from .gmm import GaussianMixture
from .gram import Gram
from .inputs import InputEnergy
from .logits import EnergyLogits, MaximumSoftmax
from .odin import ODIN
from .registry import create, methods, register

__all__ = [
    "ODIN",
    "Calibration",
    "Composition",
    "Energy",
    "EnergyLogits",
    "Ensemble",
    "Flat",
    "GaussianMixture",
    "Gram",
    "InputEnergy",
    "MaximumSoftmax",
    "Prior",
    "compose",
    "create",
    "methods",
    "register",
]
