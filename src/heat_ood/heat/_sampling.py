"""HEAT on a sharded store: everything Gaussian from the moments of all samples, all else from a sample of bounded size.

Which samples are drawn depends on the seed and on how many there are, not on who fits or on how the work is shared.
"""

from __future__ import annotations

import warnings
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ..energies import Composition
from ..errors import InputError
from ..features import Features, Moments, Space, without
from ..residual import Hybrid
from ._choice import supported

if TYPE_CHECKING:
    from ._detector import HEAT

__all__ = ["MOST_FITTED", "MOST_HELD", "bounded_split", "drawn", "spaces_of"]

MOST_FITTED = 100_000
"""So many samples train the residuals, and fit the priors that are no Gaussians."""
MOST_HELD = 20_000
"""So many are held out of the fit, to standardise and to watch: the mean and the spread of an energy are then known to
0.7 % of its spread. How quality depends on both numbers: docs/scale.md."""
PROBE = 8


def bounded_split(features: Features, fitting: Tensor, held: Tensor) -> tuple[Features, Features]:
    """Samples to fit, which stand for all that are not held out, and those held out; none held out are those to fit.

    Args:
        features: a sharded store, whose moments are known.
        fitting: the numbers of the samples to fit.
        held: the numbers of those held out.
    """
    aside = features.subset(held)

    @cache
    def moments(space: Space) -> Moments:
        known = features.moments_in(space)
        assert known is not None
        return without(known, aside, space) if len(held) else known

    standing = features.subset(fitting).standing_for(moments)
    return standing, aside if len(held) else standing


def drawn(features: Features, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """The numbers of samples to fit and of ``count`` to hold out; those are of classes that the former have, too."""
    rows = np.random.default_rng(seed).choice(len(features), MOST_FITTED + count, replace=False)
    fitting, held = (torch.from_numpy(np.sort(part)) for part in (rows[count:], rows[:count]))
    known, asked = features.subset(fitting).labels, features.subset(held).labels
    if known is not None and asked is not None:
        kept = torch.isin(asked, known)
        fitting, held = torch.cat([fitting, held[~kept]]).sort().values, held[kept]
    return fitting, held


def spaces_of(heat: HEAT, features: Features, contrast: Features | None = None) -> list[Space]:
    """The spaces in which a fit will ask for the moments of all samples, so that they can be summed in one pass.

    The parts are put together and fitted to a few samples, which stand for moments that are made up.
    """
    asked: dict[Space, None] = {}

    def made_up(space: Space) -> Moments:
        asked[space] = None
        d, classes = sum(space.widths(features[:1])), features.classes or 1
        zero = torch.zeros(d, dtype=torch.float64)
        counts = torch.full((classes,), 2 * d + 2)
        return Moments(counts, zero.repeat(classes, 1), torch.eye(d).double() * counts.sum(), zero, zero, zero + 1)

    few = features[:PROBE].standing_for(made_up)
    choice = heat.choose(features, contrast)
    inner = heat.assembled(supported(choice, *heat.split(features)) if heat.priors is None else choice)
    parts, composition = ([inner], inner.prior) if isinstance(inner, Hybrid) else ([], inner)
    assert isinstance(composition, Composition)
    for part in composition.members.values():
        prior = part.prior if isinstance(part, Hybrid) else part
        with suppress(InputError), warnings.catch_warnings():  # it will be said when it is fitted in earnest
            warnings.simplefilter("ignore")
            if not prior.trains:
                prior.fit(few)
        parts += [part] if isinstance(part, Hybrid) else []
    for hybrid in parts:
        with suppress(InputError):
            hybrid.mixture_for(few)
    return list(asked)
