"""Energies: functions from features to one number a sample, higher = more out-of-distribution."""

from .ash import Ash
from .base import Energy, Prior
from .calibration import Calibration
from .composition import Composition, compose
from .dice import Dice
from .ensemble import Ensemble
from .fdbd import FastBoundary
from .flat import Flat
from .flow import ResidualFlow
from .gen import Gen
from .gmm import GaussianMixture
from .gradnorm import GradNorm
from .gram import Gram
from .inputs import InputEnergy
from .klmatching import KLMatching
from .knn import KNearest
from .logits import EnergyLogits, MaximumSoftmax
from .mahalanobis import SSD, Mahalanobis
from .maxlogit import MaximumLogit
from .nnguide import NNGuide
from .odin import ODIN
from .openmax import OpenMax
from .react import React
from .registry import create, methods, register
from .relative import RelativeMixture
from .scale import Scale
from .vim import PrincipalResidual, VirtualLogit

__all__ = [
    "ODIN",
    "SSD",
    "Ash",
    "Calibration",
    "Composition",
    "Dice",
    "Energy",
    "EnergyLogits",
    "Ensemble",
    "FastBoundary",
    "Flat",
    "GaussianMixture",
    "Gen",
    "GradNorm",
    "Gram",
    "InputEnergy",
    "KLMatching",
    "KNearest",
    "Mahalanobis",
    "MaximumLogit",
    "MaximumSoftmax",
    "NNGuide",
    "OpenMax",
    "PrincipalResidual",
    "Prior",
    "React",
    "RelativeMixture",
    "ResidualFlow",
    "Scale",
    "VirtualLogit",
    "compose",
    "create",
    "methods",
    "register",
]
