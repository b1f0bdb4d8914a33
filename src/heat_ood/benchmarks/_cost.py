"""What detection costs beside the backbone's own pass: the paper's cost table, on one's own model."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch

from ..energies import create
from ..errors import InputError
from ..features import Features, unpack
from ..heat import HEAT, default_choice, default_residual
from ..residual import Denoising, Hybrid, Residual
from ..results import Cost
from ._forms import CORRECTED, FULL, PLAIN, paper_priors
from ._jobs import Data, silence

__all__ = ["costs_of"]

MEMBERS = 5
"""Of the deep ensemble that the paper compares with."""
SAMPLES = 4096
REPEATS = 5
QUICK = 1
"""Epochs of a residual: how long it was trained does not change what it costs to score."""


def costs_of(data: Data) -> tuple[Cost, ...]:
    """Milliseconds a sample of the backbone with its layers pooled, each energy of the paper's HEAT and of HEAT, an
    ensemble of five, and with the backbone the paper's priors, corrected, the plain composition and HEAT.
    """
    if data.extractor is None or "test" not in data.images:
        raise InputError("The cost of a backbone is measured on images, and there are stored features alone.")
    batch = next(iter(data.loader("test")))
    inputs = unpack(batch, data.extractor.network).inputs
    extractor = data.extractor
    backbone = best(lambda: extractor.forward(inputs)) / len(inputs)

    train = data.train[:SAMPLES]
    test = data.test[: min(SAMPLES, len(data.test))]
    contrast = None if data.contrast is None else data.contrast[:SAMPLES]
    three = paper_priors(data)
    with silence():
        detector = quick_heat(train, contrast is not None).fit(train, contrast, progress=False)
        whole = {PLAIN: HEAT(residual=None).fit(train), FULL: detector}
        if three:
            paper = HEAT(three, residual=Residual(epochs=QUICK))
            whole = {CORRECTED: paper.fit(train, progress=False), **whole}
    members = {name: create(name).fit(train) for name in three}
    for name, part in detector.composition.members.items():
        members[name] = part.prior if isinstance(part, Hybrid) else part
    found = {"backbone": backbone}
    for name, prior in members.items():
        found[name] = best(lambda prior=prior: prior.score(test)) / len(test)  # type: ignore[misc]
    ebm = create("ebm", residual=Denoising(epochs=QUICK)).fit(train)
    found["ebm"] = best(lambda: ebm.score(test)) / len(test)
    for name, complete in whole.items():
        found[name] = backbone + best(lambda complete=complete: complete.score(test)) / len(test)  # type: ignore[misc]
    found[f"ensemble of {MEMBERS}"] = MEMBERS * backbone
    return tuple(Cost(name, 1000 * seconds, seconds / found[FULL]) for name, seconds in found.items())


def quick_heat(train: Features, contrast: bool) -> HEAT:
    """The default, with its residuals hardly trained."""
    given = default_residual(None, default_choice(train).priors, contrast)
    parts = given if isinstance(given, Mapping) else {"": given}
    quick = {name: None if part is None else replace(part, epochs=QUICK) for name, part in parts.items()}
    return HEAT(residual=quick if isinstance(given, Mapping) else quick[""])


@torch.inference_mode()
def best(function: Callable[[], object]) -> float:
    """The shortest of several runs, in seconds."""
    times = []
    for _ in range(REPEATS + 1):
        started = time.perf_counter()
        function()
        times.append(time.perf_counter() - started)
    return min(times[1:])
