"""A fit on many machines: workers sum the moments of the shards, the driver does what takes little."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ..energies import Discriminant, Energy, GaussianMixture
from ..errors import InputError
from ..features import Features, Space, joined, keep_moments, shards_of
from ..heat import HEAT, spaces_of
from ._engine import Engine
from ._outcome import Outcome

__all__ = ["fit"]


def fit(
    detector: Energy,
    features: Features,
    engine: Engine,
    *,
    contrast: Features | None = None,
    update: Features | None = None,
    progress: bool = True,
    **settings: Any,
) -> Outcome:
    """Fit a detector to a store of shards: the same, to the bit, as ``detector.fit`` of one process.

    Workers read each shard once, for all layers, and keep its moments beside it, where a fit of one process would keep
    them too; shards whose moments are there are not read again. The rest (merging them, a sample of bounded size,
    residuals, standardising) is ``detector.fit`` itself, here.

    Args:
        detector: unfitted, or to be fitted anew.
        features: a whole store of shards, in a folder that all machines see under the same path.
        engine: where the workers are.
        contrast: as for :meth:`HEAT.fit`.
        update: earlier shards, as for :meth:`HEAT.fit`.
        progress: show bars, on a terminal.
        settings: further arguments of the detector's own ``fit``.

    Returns:
        What the workers did; the detector is fitted in place.
    """
    whole = features if update is None else joined([update, features])
    shards = tuple(shard.absolute() for shard in shards_of(whole))
    if not shards:
        raise InputError(
            "Workers fit whole stores of shards. Extract with shard=…, close the folder with merge_shards, and pass "
            "what Features.open gives; other features are fitted by detector.fit."
        )
    spaces = spaces_in(detector, whole, contrast)
    prepare = partial(partial, keep, shards, spaces)
    outcome = engine.run(prepare, range(len(shards)) if spaces else (), title="moments", progress=progress).check()
    if isinstance(detector, HEAT):
        detector.fit(whole, contrast, progress=progress, **settings)
    elif contrast is not None or settings:
        raise InputError(f"{type(detector).__name__} has no such arguments: contrast and more are for HEAT.")
    else:
        detector.fit(whole)
    return outcome


def spaces_in(detector: Energy, features: Features, contrast: Features | None) -> Sequence[Space]:
    """The spaces in which a fit asks for moments."""
    if isinstance(detector, HEAT):
        return spaces_of(detector, features, contrast)
    mixtures = (part for part in detector.modules() if isinstance(part, GaussianMixture) and part.clusters is None)
    spaces = [mixture.space for mixture in mixtures]
    return list(dict.fromkeys([detector.space] if isinstance(detector, Discriminant) else spaces))


def keep(shards: Sequence[Path], spaces: Sequence[Space], number: int) -> dict[str, int]:
    """What a worker does for one shard."""
    return {"samples": keep_moments(shards[number], spaces)}
