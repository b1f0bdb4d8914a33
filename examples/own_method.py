"""Add a method of your own in one file: it is then made by name, scored, calibrated, composed, saved and loaded.

    python examples/own_method.py

The method is the class Cosine; importing this file is enough to have it. Below it stands a demonstration on the pixels
of scikit-learn's digits, of which 7 to 9 are unknown: a toy, whose numbers say nothing about your data.
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor

from heat_ood import HEAT, Evaluation, Features, InputError, create, evaluate
from heat_ood.energies import Energy, register
from heat_ood.features import Moments, Space


@register("cosine", "cosine distance to the nearest class mean")
class Cosine(Energy):
    r"""Cosine distance to the nearest class mean; the norm of a sample does not count.

    .. math:: E(z) = 1 - \max_c \frac{z \cdot \mu_c}{\|z\| \, \|\mu_c\|}
    """

    reads = ("avg",)  # what it needs of Features; it could be std, logits or avg@layer3 as well
    learns = ("labels",)  # what it needs besides, to be fitted
    rises = ("far",)  # where its energy is sure to be high: a promise that the library's tests hold it to
    no_prior = "it has a kink where two classes are equally near"  # why HEAT cannot correct it by a residual
    space = Space(("avg",), normalise=True)
    means: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("means", None)  # what is learned lives in buffers; None is "not fitted"

    def fit(self, features: Features) -> Self:
        self.begin(features)  # refuses features that lack what it needs
        batches = features.only(self.reads).batches(4096)  # in one pass: features may be larger than memory
        moments = Moments.of(((self.space(batch), batch.labels) for batch in batches), features.classes)
        if empty := (moments.counts == 0).nonzero().flatten().tolist():
            raise InputError(f"Cosine cannot be fitted: no samples of class {empty[0]}. Pass some of every class.")
        self.means = torch.nn.functional.normalize(moments.means).to(self.space(features[:1]).dtype)
        return self

    def energy(self, features: Features) -> Tensor:  # of one batch, (n,); higher = more out-of-distribution
        z = self.space(features, self.means.dtype)
        self.check_width(z, self.means.shape[1])
        return 1 - (z @ self.means.T).amax(1)

    def validate(self) -> None:  # refuses what a damaged file may hold
        super().validate()
        if self.means.ndim != 2 or not self.means.is_floating_point():
            raise InputError(f"the class means are {self.means.dtype} of shape {tuple(self.means.shape)}")


def main() -> tuple[dict[str, Evaluation], bool]:
    z, y = load_digits(return_X_y=True)
    known, unknown = np.random.default_rng(0).permutation(np.flatnonzero(y < 7)), Features(avg=z[y >= 7])
    train, held_out, test = (Features(avg=z[rows], labels=y[rows]) for rows in np.split(known, [600, 900]))

    # By name like any other, and as a part of HEAT. With a residual for gmm alone: residual={"gmm": Residual()}.
    cosine = create("cosine").fit(train).calibrate(held_out)
    both = HEAT(priors=("gmm", "cosine"), residual=None).fit(train).calibrate(held_out)
    named = {"cosine": cosine, "HEAT of gmm and cosine": both}
    results = {name: evaluate(e, test, {"digits 7 to 9": unknown}, intervals=False) for name, e in named.items()}
    for name, result in results.items():
        print(f"{name}: AUROC {result.average.auroc:.1%}")

    # Whoever loads it imports this file first.
    with TemporaryDirectory() as folder:
        both.save(Path(folder, "detector"))
        same = torch.equal(HEAT.load(Path(folder, "detector")).p_value(unknown), both.p_value(unknown))
    print(f"Saved and loaded, HEAT gives {'the same p-values' if same else 'OTHER P-VALUES'}.")
    return results, same


if __name__ == "__main__":
    main()
