"""The training step of the paper's preset beside the bare matrix products of the same shapes, within one run.

    python benchmarks/paper_fit.py [--steps 12] [--settings released] [--only gmm]

A step moves a batch of 256 proposals by 20 Langevin steps, each a pass forward and back to the input through the
network, and then updates the network on twice the batch. Bare are the products of these passes and nothing else: no
LeakyReLU, noise, projection, prior or Adam; once as the library makes them, which is by oneDNN where that is there, and
once by torch.mm, which is MKL's. All take turns; their times are of the processor, so that what else the machine does
counts little. The products of a whole fit follow from those of a step.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from common import features, header, peak_memory, reset_peak
from heat_ood import HEAT, Residual
from heat_ood.energies import create_prior
from heat_ood.residual import Hybrid, Network
from heat_ood.residual._products import product, quick

SAMPLES, WIDTH, CLASSES = 45_000, 512, 10
"""CIFAR-10 on a ResNet-34, a tenth held out of its 50,000."""


def torch_mm(x: Tensor, weight: Tensor, out: Tensor) -> None:
    """x Wᵀ into memory that is there."""
    torch.mm(x, weight.T, out=out)


def as_the_library(x: Tensor, weight: Tensor, out: Tensor) -> None:
    """x Wᵀ."""
    product(x, weight) if quick(x, weight) else torch_mm(x, weight, out)


def products(network: Network, settings: Residual, mm: Callable[[Tensor, Tensor, Tensor], None]) -> Callable[[], float]:
    """The matrix products of one training step; gives their number of operations."""
    *weights, _ = [weight.detach() for weight, _ in network.layers_in_order()]
    batch = settings.batch
    rows = [torch.randn(n, weights[0].shape[1]) for n in (batch, 2 * batch)]
    hidden = [[x.new_empty(len(x), w.shape[0]) for w in weights] for x in rows]
    pulls = [[torch.randn(len(x), w.shape[1]) for w in (*weights[1:], weights[-1].T)] for x in rows]
    inputs, gradients = torch.empty_like(rows[0]), [torch.empty_like(w) for w in weights]

    def forward(x: Tensor, places: list[Tensor]) -> None:
        for weight, place in zip(weights, places, strict=True):
            mm(x, weight, place)
            x = place

    def run() -> float:
        for _ in range(settings.steps):
            forward(rows[0], hidden[0])
            for i in range(len(weights) - 1, -1, -1):
                mm(pulls[0][i], weights[i].T, pulls[0][i - 1] if i else inputs)
        forward(rows[1], hidden[1])
        for i in range(len(weights) - 1, -1, -1):
            mm(pulls[1][i].T, (hidden[1][i - 1] if i else rows[1]).T, gradients[i])
            if i:
                mm(pulls[1][i], weights[i].T, pulls[1][i - 1])
        size = sum(w.numel() for w in weights)
        return 2.0 * batch * (2 * settings.steps * size + 2 * (3 * size - weights[0].numel()))

    return run


def step_of(name: str, settings: Residual) -> tuple[Callable[[], object], Network]:
    """One training step of a prior's residual, as the fit makes it, and the network."""
    samples = features(4 * settings.batch + 1000, WIDTH, CLASSES)
    hybrid = Hybrid(create_prior(name), settings)
    hybrid.prior.fit(samples)
    training = hybrid.prepare(samples, samples[-1000:])
    training.n = settings.batch  # an epoch of one step
    return lambda: training.one_epoch(None), training.network


def processor_time(function: Callable[[], object]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=12, help="training steps of each prior")
    parser.add_argument("--settings", choices=("text", "released"), default="text")
    parser.add_argument("--only", help="one of the three priors")
    options = parser.parse_args()
    header(f"A training step of HEAT.paper('cifar10', settings={options.settings!r}) beside its bare products")
    detector = HEAT.paper("cifar10", settings=options.settings)
    assert isinstance(detector.residual, dict)
    print(
        "| prior | bare, s | by torch.mm, s | step, s | share of the bare rate | peak, MiB | products of a fit | fit |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name in [options.only] if options.only else detector.residual:
        settings = detector.residual[name]
        step, network = step_of(name, settings)
        bare, plain = (products(network, settings, mm) for mm in (as_the_library, torch_mm))
        operations = bare()
        step()
        reset_peak()
        times = [tuple(map(processor_time, (bare, plain, step))) for _ in range(options.steps)]
        of_bare, of_plain, of_step = (statistics.median(each) for each in zip(*times, strict=True))
        peak = peak_memory()
        count = math.ceil(SAMPLES / settings.batch) * settings.passes(SAMPLES) * operations
        whole = count / operations * of_step / 60
        print(
            f"| {name} | {of_bare:.3f} | {of_plain:.3f} | {of_step:.3f} | {of_bare / of_step:.1%} | {peak:.0f} | "
            f"{count:.1e} | {whole:.0f} min |",
            flush=True,
        )


if __name__ == "__main__":
    main()
