"""HEAT's parts, put together: priors by their names, residuals, the composition."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

import numpy as np

from ..energies import Composition, Energy, Prior, check_weights, columns_of, create_prior
from ..errors import Argument, InputError
from ..features import Features
from ..residual import Hybrid, Residual
from ._choice import Choice

__all__ = ["assembled", "name_of", "names_of", "unfitted"]


def names_of(priors: Sequence[str | Energy], weights: Sequence[float] | None, features: Features) -> tuple[str, ...]:
    """The names of the priors that were asked for, if the features have what they read."""
    names = [name_of(p) for p in priors]
    if len(set(names)) < len(names):
        raise InputError(
            f"Each prior may stand once; priors are {names}. Use weights to count one more than the others."
        )
    parts = dict(zip(names, map(unfitted, priors), strict=True))
    needs = {n: (*columns_of(part), *part.learns) for n, part in parts.items()}
    lacking = {n: [c for c in reads if c not in features.available] for n, reads in needs.items()}
    missing = {n: columns for n, columns in lacking.items() if columns}
    if missing:
        usable = tuple(n for n in names if n not in missing)
        text = "; ".join(f"{n} reads {', '.join(columns)}" for n, columns in missing.items())
        raise InputError(
            f"Some priors cannot be had from {features!r}: {text}. Extract what is missing, or name the priors "
            "that there are features for",
            *((": ", Argument("priors", usable)) if usable else ()),
            ".",
        )
    check_weights(weights, len(names))
    return tuple(names)


def assembled(priors: Sequence[str | Energy], choice: Choice, beta: float, seed: int) -> Composition | Hybrid:
    """The unfitted whole: priors, those that are corrected as hybrids, composed, and perhaps corrected together."""
    names, corrected = [name_of(p) for p in priors], choice.residuals
    if isinstance(corrected, Mapping) and (strange := set(corrected) - set(names)):
        raise InputError(f"residual names {', '.join(sorted(strange))}, which is not among {', '.join(names)}.")
    joint = corrected if isinstance(corrected, Residual) and corrected.joint else None
    members: dict[str, Energy] = {}
    for name, given in zip(names, priors, strict=True):
        settings = corrected.get(name) if isinstance(corrected, Mapping) else corrected
        own = None if joint else settings
        prior = unfitted(given)
        if own is not None and not isinstance(prior, Prior):
            raise InputError(
                f"{name} cannot be corrected: {prior.no_prior}. Pass ",
                Argument("residual", None),
                ", in Python also residual={…} without it.",
            )
        members[name] = prior if own is None else Hybrid(prior, own, seed_of(seed, name))
    share_features(members)
    composition = Composition(members, beta, choice.weights, choice.excess)
    return Hybrid(composition, joint, seed_of(seed, "joint")) if joint else composition


def unfitted(prior: str | Energy) -> Energy:
    """A prior by its name, or one with the settings of the one given."""
    return create_prior(prior) if isinstance(prior, str) else type(prior)(**prior.settings)


def name_of(prior: str | Energy) -> str:
    """A prior's name: as given, or by its class and what it reads."""
    if isinstance(prior, str):
        return prior
    columns = getattr(prior, "columns", None)
    return prior.name if columns is None else f"{prior.name}[{','.join(columns)}]"


def share_features(members: Mapping[str, Energy]) -> None:
    """Let the residuals of priors on normalised features that say so read the features of all of them."""
    priors = {name: part.prior if isinstance(part, Hybrid) else part for name, part in members.items()}
    spaces = {name: p.space for name, p in priors.items() if isinstance(p, Prior) and p.space.normalise}
    columns = tuple(dict.fromkeys(column for space in spaces.values() for column in space.columns))
    for name, space in spaces.items():
        part = members[name]
        if isinstance(part, Hybrid) and part.residual.shared and columns != space.columns:
            part.columns = columns


def seed_of(seed: int, name: str) -> int:
    """A seed for each part, so that a residual does not depend on which others are trained beside it."""
    return int(np.random.SeedSequence([seed, zlib.crc32(name.encode())]).generate_state(1)[0])
