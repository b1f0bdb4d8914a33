"""HEAT: what it is made of on given features, how it is fitted, and the paper's settings."""

from ._assembly import name_of as name_of
from ._assembly import names_of as names_of
from ._checks import check_fit as check_fit
from ._choice import AGAINST_CONTRAST as AGAINST_CONTRAST
from ._choice import FAMILY_WEIGHTS as FAMILY_WEIGHTS
from ._choice import ONE_LAYER_WEIGHTS as ONE_LAYER_WEIGHTS
from ._choice import PAPER_PRIORS as PAPER_PRIORS
from ._choice import RELATIVES as RELATIVES
from ._choice import default_choice as default_choice
from ._choice import default_residual as default_residual
from ._detector import HEAT
from ._presets import PRESETS as PRESETS
from ._presets import paper_settings as paper_settings
from ._sampling import MOST_FITTED as MOST_FITTED
from ._sampling import MOST_HELD as MOST_HELD
from ._sampling import spaces_of as spaces_of

__all__ = ["HEAT"]
