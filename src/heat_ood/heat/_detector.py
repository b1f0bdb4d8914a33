"""HEAT: priors, corrected by residuals, composed, calibrated."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from ..deprecation import renamed
from ..energies import (
    CACHE_FRIENDLY,
    MOST_PARTS,
    Composition,
    Energy,
    check_excess,
    check_kinds,
    check_weights,
    columns_of,
)
from ..errors import InputError, NotFittedError, Notice
from ..features import Array, Features, joined
from ..files import short
from ..progress import progress_bars
from ..registry import register
from ..residual import Hybrid, Residual
from ._assembly import assembled, name_of, names_of, unfitted
from ._checks import check_fit, check_heat, check_samples
from ._choice import AUTO, Choice, Residuals, default_choice, default_residual, supported
from ._presets import paper_settings
from ._sampling import MOST_FITTED, MOST_HELD, bounded_split, drawn
from ._training import Kept, Trainer, identity_of, kept_in

__all__ = ["HEAT"]

READS = ("avg", "std", "logits")
"""What the default reads of the last layer, if it is there."""
BATCH = 256
"""Samples that standardise where a batch of them does."""
FEW = 20
"""Below this many samples nothing is held out."""


@register("heat", "this library's method")
class HEAT(Energy):
    r"""Hybrid energies of several priors, composed (Lafon et al., ICML 2023).

    .. math::
        E_k^h = E_{q_k} / T_k + E_{θ_k}, \qquad
        E^β = \frac1β \log \frac1K \sum_k \exp\left(β\, \frac{E_k^h - m_k}{s_k}\right)

    Args:
        priors: names (``gmm``, ``gmm-std``, ``energy``, ``gmm-joint@layer3``, …) or unfitted energies. None takes the
            energy of the logits, the class mixture against one Gaussian, and a Gaussian mixture for each layer that
            the features have; what they lack, it does without, and says so.
        weights: one a prior; None weighs alike, and the default's priors by docs/beyond.md.
        beta: 0 is the mean of the standardised energies, -1 a mixture, the infinities maximum and minimum.
        residual: the correction's settings; None composes the priors uncorrected; a mapping gives each prior its own.
            ``"auto"`` trains one residual of everything against contrast, where ``fit`` is given some; else one of
            each prior that was named, and of the default priors the energy's alone.
        seed: of the split, the residuals' initial weights and all sampling.
        holdout: share of the samples held out of the fit, for standardising and for watching the residuals.
        standardise: by the ``held-out`` samples, by the ``training`` samples as the paper does, or by a ``batch`` of
            256 of them, as the authors' code does.
        excess: the names of priors that count together, and by what exceeds the ordinary alone: next to nothing for a
            sample that is typical for them (:class:`~heat_ood.energies.Composition`). Of the default's priors that is
            the density, where there is one layer beside the energy.

    What it learns has a trailing underscore: ``priors_``, ``weights_`` and ``residuals_`` are those that are used, and
    ``hybrids_`` the corrected energies.

    Example:
        >>> z = torch.rand(600, 6, generator=torch.Generator().manual_seed(0))
        >>> known = Features(avg=z, std=z.flip(1), labels=torch.arange(600) % 3, head=(torch.eye(3, 6), None))
        >>> train, held_out, new = known[:300], known[300:500], known[500:]
        >>> detector = HEAT(residual=Residual(epochs=1, hidden=16)).fit(train).calibrate(held_out)
        >>> detector.predict(new, fpr=0.05).float().mean() <= 0.1
        tensor(True)
        >>> list(HEAT(priors=("gmm",), residual=None).fit(train).energies(train))
        ['prior/gmm', 'score']
    """

    rises = ("far",)
    trains = True

    def __init__(
        self,
        priors: Sequence[str | Energy] | None = None,
        weights: Sequence[float] | None = None,
        beta: float = 0.0,
        residual: Residuals | str = AUTO,
        seed: int = 0,
        holdout: float = 0.1,
        standardise: str = "held-out",
        excess: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.priors, self.weights, self.beta, self.residual, self.seed = priors, weights, beta, residual, seed
        self.holdout, self.standardise, self.excess = holdout, standardise, excess
        self.choice_: Choice | None = None
        self.inner: Composition | Hybrid | None = None
        self._kept: Kept | None = None

    @classmethod
    def paper(cls, name: str = "cifar10", settings: str = "text", **changes: Any) -> Self:
        """The paper's method with its settings for ``cifar10``, ``cifar100`` or ``imagenet``.

        Args:
            name: of the ID set.
            settings: those of the paper's ``text``, or those of the authors' ``released`` code; docs/paper.md sets one
                beside the other.
            changes: arguments of HEAT that replace the paper's.

        Example:
            >>> HEAT.paper("cifar10", seed=1).standardise, HEAT.paper("cifar10", settings="released").standardise
            ('training', 'batch')
        """
        return cls(**{**paper_settings(name, settings), **changes})

    # What there is

    @property
    def reads(self) -> tuple[str, ...]:
        if self.inner is not None:
            return self.inner.reads
        if self.priors is None:
            return READS
        return tuple(dict.fromkeys(c for p in self.priors for c in columns_of(unfitted(p))))

    @property
    def learns(self) -> tuple[str, ...]:
        known = self.priors_ if self.priors is None else self.priors
        return tuple(dict.fromkeys(c for p in known for c in unfitted(p).learns))

    @property
    def fitted(self) -> bool:
        return self.inner is not None and self.inner.fitted

    @property
    def priors_(self) -> tuple[str, ...]:
        """The names of the priors that are used; none before the fit."""
        return () if self.choice_ is None else self.choice_.priors

    @property
    def weights_(self) -> tuple[float, ...] | None:
        """The weight of each prior that is used; None weighs alike."""
        return None if self.choice_ is None else self.choice_.weights

    @property
    def residuals_(self) -> dict[str, Residual]:
        """The settings of each residual that is used, by the prior that it corrects; ``joint`` corrects all."""
        return {name: hybrid.residual for name, hybrid in self.hybrids_.items()}

    @property
    def hybrids_(self) -> dict[str, Hybrid]:
        """The corrected energies by the prior's name; that of all priors together is ``joint``."""
        if isinstance(self.inner, Hybrid):
            return {"joint": self.inner}
        members = {} if self.inner is None else self.inner.members
        return {name: part for name, part in members.items() if isinstance(part, Hybrid)}

    @property
    def log(self) -> dict[str, list[dict[str, float]]]:
        """What each residual's training said, epoch by epoch."""
        return {name: hybrid.log_ for name, hybrid in self.hybrids_.items()}

    @property
    def outcomes(self) -> dict[str, str]:
        """How each residual's training ended."""
        return {name: hybrid.outcome_ for name, hybrid in self.hybrids_.items()}

    @property
    def composition(self) -> Composition:
        """The composed priors, corrected or not."""
        inner = self.inner.prior if isinstance(self.inner, Hybrid) else self.inner
        if not isinstance(inner, Composition):
            raise NotFittedError("HEAT has not been fitted. Call .fit(features) with ID features, or load a saved one.")
        return inner

    # Fit

    def check(self) -> None:
        check_heat(self)

    def fit(
        self,
        features: Features,
        contrast: Features | None = None,
        *,
        update: Features | None = None,
        progress: bool = True,
        checkpoint: str | PathLike[str] | None = None,
        device: torch.device | str | None = None,
    ) -> Self:
        """Choose and fit the priors, train the residuals, standardise; returns self.

        Args:
            features: ID samples, best those that the backbone was trained on.
            contrast: samples that the residuals learn to tell from ID, besides those that the priors propose.
            update: a store of shards of earlier ID samples, which these, a store of shards too, are added to: the fit
                is that of both. Of the earlier ones the kept moments are read, and a sample of bounded size.
            progress: show a bar for each residual, on a terminal.
            checkpoint: a folder where an interrupted fit goes on after the last whole epoch, and ends the same. What
                it keeps there is removed when the detector is saved.
            device: where to train and to score; None is where the features are.
        """
        if update is not None:
            features = joined([update, features])
        check_fit(self, features, contrast)
        choice = self.choose(features, contrast)
        check_samples(self, choice, None if features.summed else features, contrast)
        fitting, held = self.split(features)
        for given in (fitting, held) if features.summed else ():
            check_samples(self, choice, given, None)
        if self.priors is None:
            choice = supported(choice, fitting, held)
        inner = self.assembled(choice)
        if choice.lacking:
            warnings.warn(Notice(str(choice)), stacklevel=2)
        self.choice_, self.inner = choice, inner
        self.begin(features)

        composition = self.composition
        for part in composition.members.values():
            (part.prior if isinstance(part, Hybrid) else part).fit(fitting).to(device)
        known = fitting if features.summed else features
        identity = "" if checkpoint is None else identity_of(self.settings, choice, known, contrast)
        with kept_in(checkpoint) as self._kept, progress_bars(progress) as bars:
            trainer = Trainer(fitting, held, contrast, bars, self._kept, identity, device)
            for name, part in composition.members.items():
                if isinstance(part, Hybrid):
                    trainer.correct(name, part)
            composition.standardise(self.standardising(fitting, held))
            if isinstance(inner, Hybrid):
                trainer.correct("joint", inner)
        return self.eval()

    def choose(self, features: Features, contrast: Features | None = None) -> Choice:
        """Which priors these features are for, how they are weighed, and which are corrected; nothing is fitted."""
        if self.priors is None:
            choice = default_choice(features)
        else:
            weights = None if self.weights is None else tuple(map(float, self.weights))
            choice = Choice(names_of(self.priors, self.weights, features), weights, excess=tuple(self.excess))
            check_excess(choice.excess, choice.priors, weights)
        if not isinstance(self.residual, str):
            return replace(choice, residuals=self.residual)
        without = ("no contrast",) if self.priors is None and contrast is None else ()
        residuals = default_residual(self.priors, choice.priors, contrast is not None)
        return replace(choice, residuals=residuals, lacking=(*choice.lacking, *without))

    def split(self, features: Features) -> tuple[Features, Features]:
        """A view of the samples to fit and a view of those held out, by the seed; each class keeps a sample to fit.

        Of a sharded store both are of bounded size, and the samples to fit stand for all that are not held out.
        """
        n = spare = len(features)
        if features.summed and n > MOST_FITTED + MOST_HELD:
            return bounded_split(features, *drawn(features, min(MOST_HELD, round(n * self.holdout)), self.seed))
        order = np.random.default_rng(self.seed).permutation(n)
        if features.labels is not None:
            _, first = np.unique(features.labels.cpu().numpy()[order], return_index=True)
            rest = np.ones(n, dtype=bool)
            rest[first] = False
            order = np.concatenate([order[rest], order[first]])
            spare = n - len(first)
        count = min(max(2, round(n * self.holdout)), spare - 2)
        if n < FEW or self.holdout == 0 or count < 2:
            return features, features
        rows = torch.from_numpy(order)
        fitting, held = rows[count:].sort().values, rows[:count].sort().values
        if features.summed:
            return bounded_split(features, fitting, held)
        return features.subset(fitting), features.subset(held)

    def standardising(self, fitting: Features, held: Features) -> Features:
        """The samples whose energies tell the centre and the spread of each."""
        if self.standardise == "batch":
            order = np.random.default_rng([self.seed, BATCH]).permutation(len(fitting))
            return fitting.subset(torch.from_numpy(np.sort(order[:BATCH])))
        return fitting if self.standardise == "training" else held

    def assembled(self, choice: Choice) -> Composition | Hybrid:
        """The unfitted parts, as the settings and the choice say."""
        return assembled(self.priors or choice.priors, choice, self.beta, self.seed)

    # Energy

    def energy(self, features: Features) -> Tensor:
        if self.inner is None:
            raise NotFittedError("HEAT has not been fitted. Call .fit(features) with ID features, or load a saved one.")
        return self.inner.energy(features)

    @torch.inference_mode()
    def energies(self, features: Features | Array, batch_size: int = CACHE_FRIENDLY) -> dict[str, Tensor]:
        """Every term by its name: ``prior/gmm``, ``residual/gmm``, ``hybrid/gmm``, …, ``score``; (n,) each."""
        features = self.accept(features)
        batches = []
        for i, batch in enumerate(self.moved(features, batch_size)):
            batches.append(self.terms(batch))
            self.checked(batches[-1]["score"], batch, features, i * batch_size)
        batches = batches or [self.terms(features)]
        return {name: torch.cat([batch[name].cpu() for batch in batches]) for name in batches[0]}

    def terms(self, features: Features) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        corrected = []
        for name, part in self.composition.members.items():
            if isinstance(part, Hybrid):
                prior, residual = part.parts(features)
                hybrid = prior / part.temperature + residual
                found |= {f"prior/{name}": prior, f"residual/{name}": residual, f"hybrid/{name}": hybrid}
            else:
                found[f"prior/{name}"] = hybrid = part.energy(features)
            corrected.append(hybrid)
        score = self.composition.joined(torch.stack(corrected, 1))
        if isinstance(self.inner, Hybrid):
            residual = self.inner.correction(features)
            found |= {"prior/joint": score, "residual/joint": residual}
            score = score / self.inner.temperature + residual
        return {**found, "score": score}

    # Saving

    def save(self, path: str | PathLike[str]) -> None:
        super().save(path)
        if self._kept is not None:
            self._kept.remove()
            self._kept = None

    def facts(self) -> dict[str, Any]:
        weights = self.weights_ if self.priors is None else None
        chosen = self.choice_ if self.residual == AUTO else None
        found = {"used": self.priors_, "weights": weights, "residual": None if chosen is None else chosen.residuals}
        own = self.choice_ if self.priors is None else None
        return found if own is None or not own.excess else {**found, "excess": own.excess}

    def build(self, facts: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        used, residuals = tuple(facts["used"]), facts["residual"] if isinstance(self.residual, str) else self.residual
        named = used if self.priors is None else tuple(map(name_of, self.priors))
        if used != named or not 0 < len(used) <= MOST_PARTS or not all(isinstance(name, str) for name in used):
            raise InputError(f"it is made of {short(used)} and says {short(named)}")
        weights: Any = facts["weights"] if self.priors is None else self.weights
        check_weights(weights, len(used))
        check_kinds(Choice, {"residuals": residuals})
        excess = tuple(facts.get("excess", ()) if self.priors is None else self.excess)
        check_excess(excess, used, weights)
        shares = None if weights is None else tuple(map(float, weights))
        self.choice_ = Choice(used, shares, residuals, excess=excess)
        self.inner = self.assembled(self.choice_)

    # Old names

    @property
    def used(self) -> tuple[str, ...]:
        """The old name of :attr:`priors_`."""
        renamed("HEAT.used", "HEAT.priors_")
        return self.priors_

    @property
    def shares(self) -> tuple[float, ...] | None:
        """The old name of :attr:`weights_`."""
        renamed("HEAT.shares", "HEAT.weights_")
        return self.weights_

    @property
    def corrected(self) -> Residuals:
        """The old name of what is :attr:`residuals_` now, by prior."""
        renamed("HEAT.corrected", "HEAT.residuals_")
        return None if self.choice_ is None else self.choice_.residuals

    def hybrids(self) -> dict[str, Hybrid]:
        """The old name of :attr:`hybrids_`."""
        renamed("HEAT.hybrids()", "HEAT.hybrids_")
        return self.hybrids_
