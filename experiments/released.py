"""What may tell our run of the released settings from the authors' own: `gmm-std` on the CIFAR-10 network.

    python experiments/released.py [--epochs 20] [--save docs/results/released.md]

An independent run of the authors' code on this network gave 42.9 / 90.8 without a residual and 43.8 / 90.4 with it
(FPR95 / AUROC in percent, six OOD sets). Ours differs, and the notes on that code do not say why. Two things are tried,
which they leave open: a covariance that is held up (a share of it replaced by its mean variance), and a prior that
counts a squared distance whole where ours, as a density's, counts half of it (the same as half the temperature; the
residual of one fit is read with both, since its one Langevin step hardly depends on it).

This looks at OOD sets to explain a number of others. It chose nothing: the preset stays as the notes have it.
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

from heat_ood import HEAT
from heat_ood.benchmarks import suite
from heat_ood.benchmarks._prepare import prepare
from heat_ood.energies import GaussianMixture
from heat_ood.evaluation import evaluate_scores
from heat_ood.heat import paper_settings
from tables import header, save

SUITE = Path(__file__).parents[1] / "suites" / "shared-cifar10.toml"
NAME = "gmm[std]"
SHARES = (None, 0.25)
"""Of the covariance, replaced by its mean variance; None is as the preset has it."""
COUNTS = {"half the squared distance": 1.0, "the whole": 2.0}


def detector_with(share: float | None, epochs: int) -> HEAT:
    settings = paper_settings("cifar10", "released")
    residual = settings["residual"][NAME]
    drop = residual.drop_after if epochs > (residual.drop_after or 0) else None
    prior = GaussianMixture(("std",), frequencies=True, shrinkage=share)
    only = {"priors": (prior,), "residual": {NAME: replace(residual, epochs=epochs, drop_after=drop)}}
    return HEAT(**{**settings, **only}, seed=0)


def rows_of(detector: HEAT, data: Any) -> dict[str, Any]:
    """The prior's row, and the corrected one by how its distance counts."""
    terms = {key: detector.energies(features) for key, features in {"test": data.test, **data.ood}.items()}
    temperature = float(detector.hybrids_[NAME].temperature)

    def row(prior: float, residual: float) -> Any:
        scores = {
            k: (prior / temperature * t[f"prior/{NAME}"] + residual * t[f"residual/{NAME}"]) for k, t in terms.items()
        }
        test = scores.pop("test").numpy()
        return evaluate_scores(test, {key: values.numpy() for key, values in scores.items()}).average

    return {"no residual": row(1.0, 0.0), **{f"corrected, {name}": row(count, 1.0) for name, count in COUNTS.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--data", type=Path, help="where the data lie; by default as the suite says")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "heat-ood")
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    header("The released settings of gmm-std")

    data = prepare(suite(SUITE), options.data, options.cache, say=print).data
    lines, found = ["| covariance | row | FPR95 | AUROC |", "|---|---|---:|---:|"], {}
    for share in SHARES:
        title = "as the preset has it" if share is None else f"{share:.0%} replaced by its mean variance"
        detector = detector_with(share, options.epochs)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            detector.fit(data.train, checkpoint=options.cache / f"released-{share}-{options.epochs}")
        for name, row in rows_of(detector, data).items():
            lines.append(f"| {title} | {name} | {100 * row.fpr_at_95_id:.1f} | {100 * row.auroc:.1f} |")
            print(lines[-1], flush=True)
            found[f"{title}: {name}"] = {"fpr_at_95_id": row.fpr_at_95_id, "auroc": row.auroc}
    if options.save:
        save(options.save, __doc__, "\n".join(lines), found)


if __name__ == "__main__":
    main()
