"""Energies: functions from features to one number a sample, higher = more out-of-distribution."""

from ..deprecation import renamed_names
from ..registry import register
from ._ash import Ash
from ._base import CACHE_FRIENDLY as CACHE_FRIENDLY
from ._base import CHUNK as CHUNK
from ._base import Energy
from ._base import predicted as predicted
from ._calibration import Calibration
from ._composition import Composition, compose
from ._composition import bend_of as bend_of
from ._composition import check_excess as check_excess
from ._composition import check_weights as check_weights
from ._composition import excess_of as excess_of
from ._dice import Dice
from ._discriminant import Discriminant
from ._ensemble import Ensemble
from ._fdbd import FastBoundary
from ._flat import Flat
from ._flow import GaussianFlow
from ._gen import Gen
from ._gmm import GaussianMixture
from ._gmm import mixture_of as mixture_of
from ._gradnorm import GradNorm
from ._gram import Gram
from ._head import logits_of as logits_of
from ._inputs import InputEnergy
from ._inputs import columns_of as columns_of
from ._klmatching import KLMatching
from ._knn import KNearest
from ._logits import FreeEnergy, MaximumSoftmax
from ._mahalanobis import SSD, Mahalanobis
from ._maxlogit import MaximumLogit
from ._methods import create, methods
from ._methods import create_prior as create_prior
from ._methods import find as find
from ._nnguide import NNGuide
from ._odin import ODIN
from ._openmax import OpenMax
from ._prior import Prior
from ._product import product_of as product_of
from ._react import React
from ._relative import RelativeMixture
from ._scale import Scale
from ._settings import MOST_PARTS as MOST_PARTS
from ._settings import check_kinds as check_kinds
from ._settings import check_positive as check_positive
from ._settings import check_settings as check_settings
from ._settings import log_of as log_of
from ._storage import DETECTOR_FILE as DETECTOR_FILE
from ._storage import ours as ours
from ._storage import read_manifest as read_manifest
from ._storage import remove as remove
from ._tasks import Task as Task
from ._tasks import dealt as dealt
from ._tasks import distortion_tasks as distortion_tasks
from ._tasks import left_out_tasks as left_out_tasks
from ._vim import SubspaceDistance, VirtualLogit

__all__ = [
    "ODIN",
    "SSD",
    "Ash",
    "Calibration",
    "Composition",
    "Dice",
    "Discriminant",
    "Energy",
    "Ensemble",
    "FastBoundary",
    "Flat",
    "FreeEnergy",
    "GaussianFlow",
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
    "Prior",
    "React",
    "RelativeMixture",
    "Scale",
    "SubspaceDistance",
    "VirtualLogit",
    "compose",
    "create",
    "methods",
    "register",
]

_OLD = {"EnergyLogits": FreeEnergy, "PrincipalResidual": SubspaceDistance, "ResidualFlow": GaussianFlow}
__getattr__ = renamed_names(__name__, _OLD)
