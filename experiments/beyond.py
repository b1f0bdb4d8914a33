"""What the parts of HEAT's default are worth: compositions and residuals, by ID data alone and against the OOD sets.

    python experiments/beyond.py [--suites shared-cifar10 shared-cifar100] [--parts rules bounds variants] [--seeds 0]
                                [--save docs/results/beyond.md]

`rules` is what `heat-ood compare` says of both networks, which is what the weights were chosen by: classes that
are left out of the fit, and distorted training images. `bounds` is `heat-ood compare --bounds`: residuals that learn
from some kinds of distortion and some classes, judged by the rest. `variants` are against the six OOD sets, which
chose nothing here; docs/beyond.md says which of them had been looked at before the default was settled. Features are
taken from the cache of `heat-ood benchmark`.
"""

from __future__ import annotations

import argparse
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from heat_ood import HEAT, Features, Residual
from heat_ood.benchmarks import suite
from heat_ood.benchmarks._jobs import Data
from heat_ood.benchmarks._prepare import prepare
from heat_ood.evaluation import Evaluation, evaluate_scores
from heat_ood.features import KINDS
from heat_ood.heat import AGAINST_CONTRAST, PAPER_PRIORS, default_choice
from heat_ood.selection import compare, compare_bounds
from tables import header, save

SHAPE = ("jigsaw-2", "jigsaw-4", "mixup", "cutmix")
NEAR = 2
"""The first sets of a suite are the near ones."""


def variants(train: Features) -> dict[str, dict[str, Any]]:
    """Settings of HEAT by title; ``kinds`` are the distortions that its residual learns from."""
    deep = default_choice(train).priors
    layers = tuple(p for p in deep if p.startswith("gmm"))
    bounded = {f"default, bound {b:g}": {"residual": replace(AGAINST_CONTRAST, lam=0.5 / b)} for b in (0.25, 1.0)}
    return {
        "the paper's three priors": {"priors": PAPER_PRIORS, "residual": None},
        "the paper's three priors, each corrected": {"priors": PAPER_PRIORS, "residual": Residual()},
        "one density a layer": {"priors": layers, "residual": None},
        "energy and one density a layer, alike": {"priors": ("energy", *layers), "residual": None},
        "… the energy six times": {"priors": ("energy", *layers), "weights": (6, *[1] * len(layers)), "residual": None},
        "the default without its residual": {"residual": None},
        "default, the energy alone corrected, no contrast": {},
        "default, residual against widened proposals": {"residual": replace(AGAINST_CONTRAST, contrast_share=0.0)},
        "default, residual against both, half each": {
            "residual": replace(AGAINST_CONTRAST, contrast_share=0.5),
            "kinds": KINDS,
        },
        "default, contrast of jigsaws, mixup, cutmix": {"kinds": SHAPE},
        "default, odds 1": {"residual": replace(AGAINST_CONTRAST, odds=1.0), "kinds": KINDS},
        **{title: {**settings, "kinds": KINDS} for title, settings in bounded.items()},
        "the default": {"kinds": KINDS},
    }


def measured(data: Data, settings: dict[str, Any], seed: int) -> tuple[Evaluation, float]:
    """One variant with one seed, and the seconds of its fit."""
    given = dict(settings)
    kinds = given.pop("kinds", ())
    contrast = None
    if kinds:
        assert data.contrast is not None
        assert data.contrast.labels is not None
        numbers = torch.tensor([list(KINDS).index(k) for k in kinds])
        contrast = data.contrast.subset(torch.isin(data.contrast.labels, numbers).nonzero().flatten())
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        detector = HEAT(**given, seed=seed).fit(data.train, contrast, progress=False)
    seconds = time.perf_counter() - started
    scores = {name: detector.score(features) for name, features in data.ood.items()}
    return evaluate_scores(detector.score(data.test), scores, intervals=False), seconds


def row(title: str, runs: list[tuple[Evaluation, float]]) -> str:
    fpr, auc = ([100 * getattr(e.average, m) for e, _ in runs] for m in ("fpr_at_95_id", "auroc"))
    sets = runs[0][0].names
    near, rest = ([100 * np.mean([e[s].auroc for s in part]) for e, _ in runs] for part in (sets[:NEAR], sets[NEAR:]))
    spread = f" (± {np.std(fpr, ddof=1):.2f} / {np.std(auc, ddof=1):.2f})" if len(runs) > 1 else ""
    seconds = np.mean([s for _, s in runs])
    return (
        f"| {title} | {np.mean(fpr):.2f} / {np.mean(auc):.2f}{spread} | {np.mean(near):.2f} | {np.mean(rest):.2f} | "
        f"{seconds:.0f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suites", nargs="+", default=["shared-cifar10", "shared-cifar100"])
    parser.add_argument("--parts", nargs="+", default=["rules", "bounds", "variants"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "heat-ood")
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    header("What the parts of HEAT's default are worth")

    parts, numbers = [], {}
    for name in options.suites:
        data = prepare(suite(name), cache=options.cache, say=print).data
        if data.contrast is None:
            raise SystemExit(f"{name} has no contrast: its suite must not say contrast = false.")
        parts.append(f"## {name}")
        if "rules" in options.parts:
            parts.append(f"Rules, by ID data alone:\n\n```\n{compare(data.train, data.contrast)}\n```")
            print(parts[-1], flush=True)
        if "bounds" in options.parts:
            found = compare_bounds(data.train, data.contrast)
            parts.append(
                f"Bounds and odds, by distortions and classes that the residual has not seen:\n\n```\n{found}\n```"
            )
            print(parts[-1], flush=True)
        if "variants" in options.parts:
            lines = ["| | FPR95 / AUROC | near AUROC | other AUROC | fit, s |", "|---|---|---|---|---|"]
            for title, settings in variants(data.train).items():
                runs = [measured(data, settings, seed) for seed in options.seeds]
                numbers[f"{name}/{title}"] = [e.to_dict() for e, _ in runs]
                lines.append(row(title, runs))
                print(lines[-1], flush=True)
            parts.append("Against the OOD sets:\n\n" + "\n".join(lines))
    body = "\n\n".join(parts)
    print(f"\n{body}")
    if options.save:
        save(options.save, __doc__, body, numbers)


if __name__ == "__main__":
    main()
