"""What computing the network's gradient in bfloat16 does to the paper's chains, and to the residual that comes of them.

    python experiments/coarse_chains.py [--samples 10000] [--epochs 20] [--save docs/results/coarse-chains.md]

One prior of `HEAT.paper("cifar10")`, `gmm`, on training features of the shared CIFAR-10 network, fitted twice with the
same seed: chains in float32, and chains in bfloat16. Then 2,000 proposals are moved with the same noise by the trained
network's gradient in float32, in bfloat16, and without it; and held-out samples are scored by both fits. It reads the
training features that `heat-ood benchmark shared-cifar10` keeps, and no OOD set.
"""

from __future__ import annotations

import argparse
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ahead_relative import training
from heat_ood import HEAT, Features
from heat_ood.residual import Hybrid, langevin
from heat_ood.residual._coarse import CoarseGradient, quick_in_bfloat16
from heat_ood.residual._gradient import InputGradient
from tables import header, save

SEED, MOVED = 0, 2000


def fitted(train: Features, coarse: bool, epochs: int) -> tuple[HEAT, float]:
    """The detector, and the minutes that it took."""
    preset = HEAT.paper("cifar10").residual
    assert isinstance(preset, dict)
    settings = replace(preset["gmm"], coarse=coarse, epochs=epochs)
    started = time.perf_counter()
    detector = HEAT.paper("cifar10", priors=("gmm",), residual={"gmm": settings}, seed=SEED)
    return detector.fit(train, progress=False), (time.perf_counter() - started) / 60


def ways(hybrid: Hybrid) -> dict[str, float]:
    """How far chains go, in all and by what: means of Euclidean distances."""
    network, mixture, s = hybrid.network, hybrid.prior, hybrid.residual
    assert network is not None
    start = mixture.propose(MOVED, torch.Generator().manual_seed(SEED), None)

    def ends(of_network: object, of_prior: bool = True) -> Tensor:
        def gradient(x: Tensor) -> Tensor:
            slope = mixture.gradient_of(x) / hybrid.temperature if of_prior else torch.zeros_like(x)
            return slope + of_network(x)  # type: ignore[operator]

        noise = torch.Generator().manual_seed(SEED + 1)
        return langevin(start, gradient, s.steps, s.step, s.noise, mixture.project, noise)

    fine, coarse = ends(InputGradient(network)), ends(CoarseGradient(network))
    still, noise = ends(torch.zeros_like), ends(torch.zeros_like, of_prior=False)
    pairs = {
        "in all": (fine, start),
        "by noise and projection alone": (noise, start),
        "by the prior's gradient": (still, noise),
        "by the network's gradient": (fine, still),
        "by its rounding": (coarse, fine),
    }
    return {name: float((one - other).norm(dim=1).mean()) for name, (one, other) in pairs.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    header("The paper's chains in bfloat16")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    whole = training("shared-cifar10")
    rows = np.random.default_rng(SEED).permutation(len(whole))
    train, unseen = (
        whole.subset(torch.from_numpy(np.sort(rows[part]))) for part in (slice(options.samples), slice(-5000, None))
    )
    (fine, fine_took), (coarse, coarse_took) = (fitted(train, way, options.epochs) for way in (False, True))
    hybrids = [detector.hybrids_["gmm"] for detector in (fine, coarse)]
    assert hybrids[0].network is not None
    lines = ["| a chain of 20 steps moves a proposal | by |", "|---|---:|"]
    found: dict[str, object] = {"chains": ways(hybrids[0]), "quick here": quick_in_bfloat16(hybrids[0].network)}
    lines += [f"| {name} | {value:.2g} |" for name, value in found["chains"].items()]  # type: ignore[attr-defined]
    residuals = [detector.energies(unseen)["residual/gmm"] for detector in (fine, coarse)]
    scores = [detector.energies(unseen)["hybrid/gmm"] for detector in (fine, coarse)]
    found["correlation of residuals"] = float(torch.corrcoef(torch.stack(residuals))[0, 1])
    found["largest difference of scores, in their spread"] = float(
        (scores[0] - scores[1]).abs().max() / scores[0].std()
    )
    found["minutes"] = {"float32": fine_took, "bfloat16": coarse_took}
    lines += ["", "| of 5,000 samples that neither fit saw | |", "|---|---:|"]
    lines += [f"| {k} | {v:.5f} |" for k, v in found.items() if isinstance(v, float)]
    lines += [f"| minutes of the fit, {k} | {v:.1f} |" for k, v in found["minutes"].items()]  # type: ignore[attr-defined]
    print("\n".join(lines))
    if options.save:
        save(options.save, __doc__, "\n".join(lines), found)


if __name__ == "__main__":
    main()
