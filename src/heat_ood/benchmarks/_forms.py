"""HEAT in its forms, each a row of a table: the default, with less, and with the paper's priors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..energies import create
from ..features import Features
from ..heat import HEAT, PAPER_PRIORS, name_of, paper_settings
from ..residual import Residual
from ._jobs import Data, Job, Line, Scored, fitted_scores, silence, stratified
from ._runner import look_at, result_of

__all__ = [
    "ALIASES",
    "BARE",
    "CORRECTED",
    "FULL",
    "PAPER",
    "PLAIN",
    "RELEASED",
    "THREE",
    "Form",
    "fit_of",
    "forms",
    "paper_priors",
    "settings_of",
    "usual_forms",
]

FULL, BARE, PLAIN = "HEAT", "HEAT, no contrast", "plain composition"
THREE, CORRECTED = "paper's priors, plain", "paper's priors, corrected"
PAPER, RELEASED = "HEAT.paper()", "HEAT.paper(), released"
AS_TEXT, AS_RELEASED = "corrected as in the paper", "corrected as released"
ALONE = {name: f"{name}, released" for name in PAPER_PRIORS}
ALIASES = {"heat": FULL, "heat-paper": PAPER, "heat-released": RELEASED}
TEXT = {name: f"{name}, {AS_TEXT}" for name in PAPER_PRIORS}
LESS = 10_000
"""Training samples of the preset's rows on a part, whose seeds take minutes where those of the whole take hours."""
PART = f", {LESS:,} samples"
ALIASES |= {f"paper-{name}": row for name, row in TEXT.items()}
ALIASES |= {f"released-{name}": row for name, row in ALONE.items()}
ALIASES |= {f"{alias}-part": f"{row}{PART}" for alias, row in ALIASES.items() if row in (PAPER, *TEXT.values())}
"""What may be typed for a row's name."""


@dataclass(frozen=True)
class Form:
    """A form of HEAT.

    Args:
        kind: of its rows.
        settings: of HEAT, but for the seed.
        contrast: whether it is fitted with contrast, where there is some.
        corrected: where it is given, each corrected prior is a row of its own, with this behind its name.
        alone: there is one prior, and its own energy takes the place of the composition's.
        parts: whether each energy, standardised as it is composed, is kept under its prior's name beside the score.
        apart: whether each prior is a job of its own, whose scores are kept when it is done: for what takes hours.
            Its residual is the same, since it does not depend on the others.
        samples: how many training samples, drawn by the seed, it is fitted to; None takes all.
    """

    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    contrast: bool = False
    corrected: str = ""
    alone: bool = False
    parts: bool = False
    apart: bool = False
    samples: int | None = None

    def job(self, title: str, data: Data) -> Job:
        """A job with a row, and perhaps one for each prior."""
        lines = (Line(title, self.kind), *(Line(row, "corrected") for row in self.rows))
        settings = settings_of(data, self.settings, contrast=self.contrast)
        part = {} if self.samples is None else {"samples": self.samples}
        return Job(title, lines, self.run(title), settings | part)

    @property
    def rows(self) -> dict[str, str]:
        """The terms of HEAT that are rows, by the row's name."""
        names = map(name_of, self.settings["priors"]) if self.corrected else ()
        return {f"{name}, {self.corrected}": f"hybrid/{name}" for name in names}

    def run(self, title: str) -> Callable[[Data, int, Path], Scored]:
        """Fit with a seed, and score; an interrupted fit goes on."""

        def run(data: Data, seed: int, folder: Path) -> Scored:
            if self.apart:
                jobs = [form.job(row, data) for row, form in self.each.items()]
                return together(title, jobs, data, seed, folder.parent)
            if self.samples is not None:
                rows = stratified(data.train, min(1.0, self.samples / len(data.train)), seed)
                data = replace(data, train=data.train.subset(torch.from_numpy(rows)))
            detector = HEAT(**self.settings, seed=seed)
            fit = fit_of(detector, data, folder, contrast=self.contrast)
            if self.parts:
                names = (title, *self.settings["priors"])
                return fitted_scores(fit, data, lambda e, f: composed(e, f, title), names)
            if not self.corrected:
                return fitted_scores(fit, data, lambda e, f: {title: e.score(f)}, (title,))

            def terms(_: Any, features: Features) -> Mapping[str, Tensor]:
                found = detector.energies(features)
                whole = found[f"prior/{detector.priors_[0]}" if self.alone else "score"]
                return {title: whole, **{row: found[term] for row, term in self.rows.items()}}

            return fitted_scores(fit, data, terms, (title, *self.rows))

        return run

    @property
    def each(self) -> dict[str, Form]:
        """A form for each prior, whose one row is its corrected and standardised energy."""
        found = {}
        for prior, row in zip(self.settings["priors"], self.rows, strict=True):
            name = name_of(prior)
            only = {"priors": (prior,), "residual": {name: self.settings["residual"][name]}}
            found[row] = Form("corrected", {**self.settings, **only}, samples=self.samples)
        return found


def together(title: str, jobs: Sequence[Job], data: Data, seed: int, folder: Path) -> Scored:
    """The mean of what jobs scored, and each beside it; what was done before is read back."""
    found = [result_of(job, data, seed, folder)[0] for job in jobs]
    rows = {name: scores for scored in found for name, scores in scored.scores.items()}
    whole = {key: np.mean([scores[key] for scores in rows.values()], axis=0) for key in data.scored}
    took = [sum(values) for values in zip(*((s.fit_seconds, s.score_seconds) for s in found), strict=True)]
    return Scored({title: whole, **rows}, *took)


def composed(detector: HEAT, features: Features, title: str) -> dict[str, Tensor]:
    """The score, and each prior's energy, corrected where the detector does, standardised as in its composition."""
    found, parts = detector.energies(features), detector.composition
    which = "prior" if detector.residual is None else "hybrid"
    single = {n: (found[f"{which}/{n}"] - parts.centres[i]) / parts.spreads[i] for i, n in enumerate(parts.members)}
    return {title: found["score"], **single}


def forms(data: Data) -> dict[str, Form]:
    """All forms that the data allows, by the name of the row."""
    three = paper_priors(data)
    as_text = Form("heat", paper_settings(data.preset), corrected=AS_TEXT, apart=True)
    in_part = replace(as_text, corrected=f"{AS_TEXT}{PART}", samples=LESS)
    of_the_paper = {
        THREE: Form("composition", {"priors": three, "residual": None}, parts=True),
        CORRECTED: Form("heat", {"priors": three, "residual": Residual()}, parts=True),
        PAPER: as_text,
        **as_text.each,
        f"{PAPER}{PART}": in_part,
        **in_part.each,
        RELEASED: Form("heat", paper_settings(data.preset, "released"), corrected=AS_RELEASED),
        **{ALONE[name]: released_alone(data.preset, i) for i, name in enumerate(PAPER_PRIORS) if name in three},
    }
    return {
        **(of_the_paper if three else {}),
        PLAIN: Form("composition", {"residual": None}),
        BARE: Form("heat"),
        FULL: Form("heat", contrast=True),
    }


def released_alone(preset: str, which: int) -> Form:
    """One of the paper's priors as the released code has it; its corrected form is the row beside."""
    settings = paper_settings(preset, "released")
    prior = settings["priors"][which]
    chosen = {"priors": (prior,), "residual": {name_of(prior): settings["residual"][name_of(prior)]}}
    return Form("prior", {**settings, **chosen}, corrected=AS_RELEASED, alone=True)


def usual_forms(data: Data) -> list[str]:
    """Those that are run unless others are chosen: not what takes hours, and not the default with less."""
    slow = {PAPER, RELEASED, *ALONE.values(), *TEXT.values()}
    return [name for name in forms(data) if name != BARE and name.removesuffix(PART) not in slow]


def paper_priors(data: Data) -> tuple[str, ...]:
    """Of the paper's priors those that the features have what they read."""
    return tuple(name for name in PAPER_PRIORS if set(create(name).reads) <= data.train.available)


def fit_of(detector: HEAT, data: Data, folder: Path, *, contrast: bool = False) -> Callable[[], HEAT]:
    """What fits a detector, with a checkpoint where there is something to train; HEAT itself says what it lacks."""

    def fit() -> HEAT:
        checkpoint = None if detector.residual is None else folder
        given = data.contrast if contrast else None
        with silence(contrast):
            return detector.fit(data.train, given, checkpoint=checkpoint)

    return fit


def settings_of(data: Data, settings: Mapping[str, Any], *, contrast: bool = False) -> dict[str, Any]:
    """All settings of HEAT but the seed, and what the default comes to here: with another default it is another row."""
    detector, given = HEAT(**settings), data.contrast if contrast else None
    choice = detector.choose(data.train, given)
    found = {**detector.settings, "priors": choice.priors, "weights": choice.weights, "residual": choice.residuals}
    del found["seed"]
    return {**found, "contrast": seen(given)}


def seen(contrast: Features | None) -> str | None:
    return None if contrast is None else f"{len(contrast)} samples, {look_at(contrast)}"
