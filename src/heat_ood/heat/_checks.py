"""What HEAT refuses before it computes anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..energies import MOST_PARTS, check_settings, columns_of
from ..errors import Argument, InputError
from ..features import Features, check_finite, check_same_model
from ..files import short
from ..residual import Residual
from ._assembly import name_of, unfitted
from ._choice import AUTO, Choice

if TYPE_CHECKING:
    from ._detector import HEAT

__all__ = ["check_fit", "check_heat", "check_samples"]


def check_fit(heat: HEAT, features: Features, contrast: Features | None) -> None:
    """Refuse settings and samples that cannot be meant, before anything is computed."""
    for given in (features,) if contrast is None else (features, contrast):
        if not isinstance(given, Features):
            raise InputError(
                f"fit needs Features, not {type(given).__name__}. Pass Features(avg=…, std=…, labels=…, head=(W, b))."
            )
    if contrast is not None:
        check_same_model(features.fingerprint, contrast.fingerprint)
        if features.seen is not None:
            features.seen.check(contrast.seen)
        if not len(contrast):
            raise InputError("contrast has no samples. Pass some, or leave it out.")
        if heat.residual is None:
            raise InputError(
                "Contrast teaches the residuals, and with ",
                Argument("residual", None),
                " there are none. Leave out one of the two.",
            )
    if isinstance(heat.priors, str):
        raise InputError("priors is a sequence: write ", Argument("priors", (heat.priors,)), ".")
    check_settings(heat)
    if len(features) < 2:
        raise InputError(f"HEAT cannot be fitted to {len(features)} sample: pass at least two, better thousands.")


def check_heat(heat: HEAT) -> None:
    """Refuse settings that cannot be meant, whatever they are fitted to."""
    if heat.priors is not None and not len(heat.priors):
        raise InputError("HEAT needs at least one prior. Leave out priors for the default.")
    if heat.priors is not None and len(heat.priors) > MOST_PARTS:
        raise InputError(f"HEAT composes at most {MOST_PARTS} priors, not {len(heat.priors)}.")
    if heat.priors is None and heat.weights is not None:
        raise InputError("weights are for priors that are named: pass both, or neither.")
    if heat.priors is None and len(heat.excess):
        raise InputError("excess is of priors that are named: pass both, or neither.")
    if isinstance(heat.residual, str) and heat.residual != AUTO:
        raise InputError(f"residual is Residual(…), a mapping, None or {AUTO!r}, not {short(heat.residual)}.")
    if heat.seed < 0:
        raise InputError(f"seed is a whole number of at least 0, not {heat.seed}.")
    if not 0 <= heat.holdout < 1:
        raise InputError(f"holdout is a share, at least 0 and below 1, not {heat.holdout}.")
    if heat.standardise not in ("held-out", "training", "batch"):
        raise InputError(f"standardise is 'held-out', 'training' or 'batch', not {short(heat.standardise)}.")
    if isinstance(heat.residual, Mapping):
        unknown = set(heat.residual) - {name_of(p) for p in heat.priors or heat.residual}
        if unknown:
            raise InputError(f"residual names {', '.join(sorted(unknown))}, which is not among the priors.")
        if any(settings is not None and settings.joint for settings in heat.residual.values()):
            raise InputError("A joint residual stands for all priors. Write residual=Residual(joint=True, …).")
    for settings in heat.residual.values() if isinstance(heat.residual, Mapping) else [heat.residual]:
        if isinstance(settings, Residual):
            settings.check()


def check_samples(heat: HEAT, choice: Choice, features: Features | None, contrast: Features | None) -> None:
    """Refuse samples whose features are no numbers, in the columns that the chosen priors read."""
    names = tuple(dict.fromkeys(name for prior in heat.priors or choice.priors for name in columns_of(unfitted(prior))))
    for what, given in (("samples to fit", features), ("samples of contrast", contrast)):
        if given is not None:
            check_finite(given, names, what)
