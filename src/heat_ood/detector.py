"""HEAT: priors, corrected by residuals, composed, calibrated."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from .assembly import assembled, name_of, names_of, unfitted
from .checks import check_fit
from .energies import Composition, Energy, register
from .energies.base import CACHE_FRIENDLY
from .energies.composition import check_weights
from .energies.inputs import columns_of
from .energies.registry import CLASSES
from .energies.storage import VALUES
from .errors import NotFittedError, Notice
from .features import Array, Features
from .presets import paper_settings
from .progress import Bars, progress_bars
from .recipe import AUTO, Residuals, default_priors, default_residual, holds
from .residual import Checkpoint, Hybrid, Residual

__all__ = ["HEAT"]

READS = ("avg", "std", "logits")
"""What the default reads of the last layer, if it is there."""
FEW = 20
"""Below this many samples nothing is held out."""


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
        standardise: by the ``held-out`` samples, or by the ``training`` samples as the paper does.

    Example:
        >>> z = torch.rand(400, 6, generator=torch.Generator().manual_seed(0))
        >>> train = Features(avg=z, std=z.flip(1), labels=torch.arange(400) % 3, head=(torch.eye(3, 6), None))
        >>> detector = HEAT(residual=Residual(epochs=1, hidden=16)).fit(train).calibrate(train)
        >>> detector.predict(train, fpr=0.05).float().mean() <= 0.05
        tensor(True)
        >>> list(HEAT(priors=("gmm",), residual=None).fit(train).energies(train))
        ['prior/gmm', 'score']
    """

    name = "heat"

    def __init__(
        self,
        priors: Sequence[str | Energy] | None = None,
        weights: Sequence[float] | None = None,
        beta: float = 0.0,
        residual: Residuals | str = AUTO,
        seed: int = 0,
        holdout: float = 0.1,
        standardise: str = "held-out",
    ) -> None:
        super().__init__()
        self.priors, self.weights, self.beta, self.residual, self.seed = priors, weights, beta, residual, seed
        self.holdout, self.standardise = holdout, standardise
        self.used: tuple[str, ...] = ()
        self.shares: tuple[float, ...] | None = None
        self.corrected: Residuals = None
        self.inner: Composition | Hybrid | None = None

    @classmethod
    def paper(cls, name: str = "cifar10", **changes: Any) -> Self:
        """The paper's method with its settings for ``cifar10``, ``cifar100`` or ``imagenet``; arguments change them.

        Example:
            >>> HEAT.paper("cifar10", seed=1).standardise
            'training'
        """
        return cls(**{**paper_settings(name), **changes})

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
        return tuple(dict.fromkeys(c for p in self.chosen for c in unfitted(p).learns))

    @property
    def chosen(self) -> list[str | Energy]:
        """The priors that are used, as given; those of the default by their names."""
        return list(self.used) if self.priors is None else [p for p in self.priors if name_of(p) in self.used]

    @property
    def fitted(self) -> bool:
        return self.inner is not None and self.inner.fitted

    @property
    def log(self) -> dict[str, list[dict[str, float]]]:
        """What each residual's training said, epoch by epoch."""
        return {name: hybrid.log for name, hybrid in self.hybrids().items()}

    @property
    def outcomes(self) -> dict[str, str]:
        """How each residual's training ended."""
        return {name: hybrid.outcome for name, hybrid in self.hybrids().items()}

    def hybrids(self) -> dict[str, Hybrid]:
        """The corrected priors by name; the joint residual is ``joint``."""
        if isinstance(self.inner, Hybrid):
            return {"joint": self.inner}
        members = {} if self.inner is None else self.inner.members
        return {name: part for name, part in members.items() if isinstance(part, Hybrid)}

    @property
    def composition(self) -> Composition:
        """The composed priors, corrected or not."""
        inner = self.inner.prior if isinstance(self.inner, Hybrid) else self.inner
        if not isinstance(inner, Composition):
            raise NotFittedError("HEAT has not been fitted. Call .fit(features) with ID features, or load a saved one.")
        return inner

    # Fit

    def fit(
        self,
        features: Features,
        contrast: Features | None = None,
        *,
        progress: bool = True,
        checkpoint: str | PathLike[str] | None = None,
        device: torch.device | str | None = None,
    ) -> Self:
        """Fit the priors, train the residuals, standardise; returns self.

        Args:
            features: ID samples, best those that the backbone was trained on.
            contrast: samples that the residuals learn to tell from ID, besides those that the priors propose.
            progress: show a bar for each residual, on a terminal.
            checkpoint: a folder where an interrupted fit goes on after the last whole epoch, and ends the same.
            device: where to train and to score; None is where the features are.
        """
        check_fit(self, features, contrast)
        lacking = self.choose(features, contrast)
        fitting, held = self.split(features)
        lacking += self.drop_unsupported(fitting, held)
        self.assemble()
        if lacking:
            warnings.warn(Notice(self.account(lacking)), stacklevel=2)
        self.begin(features)
        composition = self.composition
        identity = self.identity(features, contrast)
        with progress_bars(progress) as bars:
            for name, part in composition.members.items():
                if isinstance(part, Hybrid):
                    self.correct(part, name, fitting, held, contrast, bars, checkpoint, identity, device)
                else:
                    part.fit(fitting).to(device)
            composition.standardise(fitting if self.standardise == "training" else held)
            if isinstance(self.inner, Hybrid):
                self.correct(self.inner, "joint", fitting, held, contrast, bars, checkpoint, identity, device)
        return self.eval()

    def choose(self, features: Features, contrast: Features | None) -> list[str]:
        """Settle which priors are used, how they are weighed, which are corrected; returns what the default lacks."""
        auto, lacking = isinstance(self.residual, str), list[str]()
        if self.priors is None:
            recipe = default_priors(features)
            self.used, self.shares, lacking = recipe.priors, recipe.weights, [*recipe.lacking]
            if auto and contrast is None:
                lacking.append("no contrast")
        else:
            self.used = names_of(self.priors, self.weights, features)
            self.shares = None if self.weights is None else tuple(map(float, self.weights))
        given = self.residual
        self.corrected = default_residual(self.priors, self.used, contrast is not None) if auto else given  # type: ignore[assignment]
        return lacking

    def drop_unsupported(self, fitting: Features, held: Features) -> list[str]:
        """Leave out the default's relative energy where ID data does not support it; returns what to say."""
        found = [n for n in self.used if self.priors is None and n.startswith("relative") and len(self.used) > 1]
        dropped = [name for name in found if not holds(name, fitting, held)]
        weights = dict(zip(self.used, self.shares or (), strict=bool(self.shares)))
        self.used = tuple(name for name in self.used if name not in dropped)
        self.shares = tuple(weights[name] for name in self.used) if self.shares else None
        return [f"no support for {name} among the classes" for name in dropped]

    def account(self, lacking: Sequence[str]) -> str:
        """One sentence on what the default is made of here."""
        if isinstance(self.corrected, Residual):
            how = "corrected as a whole" if self.corrected.joint else "each corrected"
        else:
            single = [name for name, settings in (self.corrected or {}).items() if settings is not None]
            how = f"{', '.join(single) or 'nothing'} corrected"
        return f"HEAT uses {', '.join(self.used)}, {how}; there is {', '.join(lacking)}."

    def assemble(self) -> None:
        """The unfitted parts, as the settings and the chosen priors say."""
        self.inner = assembled(self.chosen, self.corrected, self.beta, self.shares, self.seed)

    def split(self, features: Features) -> tuple[Features, Features]:
        """A view of the samples to fit and a view of those held out, by the seed; each class keeps a sample to fit."""
        n = spare = len(features)
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
        return features.subset(rows[count:].sort().values), features.subset(rows[:count].sort().values)

    def correct(
        self,
        hybrid: Hybrid,
        name: str,
        fitting: Features,
        held: Features,
        contrast: Features | None,
        bars: Bars,
        folder: str | PathLike[str] | None,
        identity: str,
        device: torch.device | str | None,
    ) -> None:
        checkpoint = (
            None
            if folder is None
            else Checkpoint(Path(folder) / f"{name.replace('/', '-')}.safetensors", f"{identity}/{name}")
        )
        hybrid.title = name
        hybrid.fit(fitting, held, contrast, bars.add(f"residual of {name}"), checkpoint, device)

    def identity(self, features: Features, contrast: Features | None) -> str:
        """What a fit is made of, for its checkpoints: settings, and a look at the samples."""
        digest = hashlib.sha256(repr((self.settings, self.used, self.shares, self.corrected)).encode())
        for part in (features, contrast):
            digest.update(repr(part).encode())
            if part is not None:
                some = part[:: max(1, len(part) // 64)]
                for tensor in (*some.columns.values(), part.labels, *(part.head or ())):
                    if tensor is not None:
                        digest.update(tensor.cpu().contiguous().view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()

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
            self.checked(batches[-1]["score"], batch, i * batch_size)
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
            _, residual = self.inner.parts(features)
            found |= {"prior/joint": score, "residual/joint": residual}
            score = score / self.inner.temperature + residual
        return {**found, "score": score}

    # Saving

    def facts(self) -> dict[str, Any]:
        weights = self.shares if self.priors is None else None
        return {"used": self.used, "weights": weights, "residual": self.corrected if self.residual == AUTO else None}

    def build(self, facts: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        self.used = tuple(facts["used"])
        self.shares = facts["weights"] if self.priors is None else self.weights  # type: ignore[assignment]
        self.corrected = facts["residual"] if isinstance(self.residual, str) else self.residual
        check_weights(self.shares, len(self.used))
        self.assemble()


register("heat", HEAT, READS, False, "this library's method")
CLASSES[Hybrid.name] = Hybrid
VALUES["Residual"] = Residual
