"""Energies: functions from features to one number a sample, higher = more out-of-distribution."""

from .base import Energy, Prior
from .calibration import Calibration
from .composition import Composition, compose
from .flat import Flat
from .gmm import GaussianMixture
from .logits import EnergyLogits, MaximumSoftmax
from .registry import create, methods, register

__all__ = [
    "Calibration",
    "Composition",
    "Energy",
    "EnergyLogits",
    "Flat",
    "GaussianMixture",
    "MaximumSoftmax",
    "Prior",
    "compose",
    "create",
    "methods",
    "register",
]
