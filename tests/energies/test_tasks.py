"""Tasks made of ID data: priors without some classes are those fitted without them, and each class has its turn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from torch import Tensor

from heat_ood import Features
from heat_ood.energies._methods import create_prior
from heat_ood.energies._tasks import Task, distortion_tasks, left_out_tasks, matrix
from heat_ood.errors import InputError

CLASSES, FOLDS, D = 7, 3, 6
SIZES = 2 ** torch.arange(CLASSES)
"""Held-out samples of each class: the sum of any of them says which they are."""
GAUSSIANS = ("gmm", "gmm-std", "gmm-joint", "gmm-joint@early", "gmm@early", "relative-gmm", "relative-gmm-joint@early")


def samples(labels: Tensor, seed: int = 0, dtype: torch.dtype = torch.float64) -> Features:
    g = torch.Generator().manual_seed(seed)
    means = 2 * torch.rand(CLASSES, 4 * D, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    mix = torch.randn(4 * D, 4 * D, generator=torch.Generator().manual_seed(8), dtype=torch.float64) / 5
    z = (means[labels] + torch.randn(len(labels), 4 * D, generator=g, dtype=torch.float64) @ mix).relu().to(dtype)
    avg, std, *early = z.split(D, 1)
    return Features(
        avg, std, labels=labels, head=(means[:, :D].to(dtype), None), layers={"early": (early[0], early[1])}
    )


def train() -> Features:
    """Classes of unequal size, in no order."""
    labels = torch.arange(CLASSES).repeat_interleave(20 + 5 * torch.arange(CLASSES))
    return samples(labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))])


def held() -> Features:
    return samples(torch.arange(CLASSES).repeat_interleave(SIZES), seed=2)


def left_out(task: Task) -> list[int]:
    return [c for c in range(CLASSES) if len(task.other) >> c & 1]


def alone(features: Features, classes: list[int]) -> Features:
    """The samples of these classes, which are numbered anew; nothing else is known of."""
    labels = features.labels
    rows = torch.isin(labels, torch.tensor(classes))
    layers = {name: (layer.avg[rows], layer.std[rows]) for name, layer in features.layers.items()}
    renumbered = torch.searchsorted(torch.tensor(classes), labels[rows])
    return Features(features.avg[rows], features.std[rows], labels=renumbered, layers=layers)


@pytest.mark.parametrize("chunk", [5, 4096])
@pytest.mark.parametrize("name", GAUSSIANS)
def test_a_prior_without_classes_is_one_fitted_to_the_others(
    name: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heat_ood.energies._tasks.CHUNK", chunk)
    for task in left_out_tasks((name,), train(), held(), FOLDS, seed=3):
        left = left_out(task)
        kept = [c for c in range(CLASSES) if c not in left]
        prior = create_prior(name).fit(alone(train(), kept))
        for found, classes in ((task.real, kept), (task.other, left)):
            expected = prior.score(alone(held(), classes))
            assert expected.dtype == torch.float64
            torch.testing.assert_close(found[:, 0], expected, rtol=1e-9, atol=1e-9)


def test_channels_that_vary_between_classes_alone_are_in_neither_term_of_the_relative_energy() -> None:
    def flat(features: Features) -> Features:
        z = torch.nn.functional.normalize(features.avg)
        first = 0.1 + 0.1 * features.labels[:, None].double()
        return Features(torch.cat([first, (1 - first.square()).sqrt() * z], 1), z, labels=features.labels)

    for task in left_out_tasks(("relative-gmm",), flat(train()), flat(held()), FOLDS, seed=3):
        kept = [c for c in range(CLASSES) if c not in left_out(task)]
        prior = create_prior("relative-gmm").fit(alone(flat(train()), kept))
        assert (prior.density.white == 0).all(0).tolist() == [True] + D * [False]
        torch.testing.assert_close(task.real[:, 0], prior.score(alone(flat(held()), kept)), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_the_logits_of_classes_that_are_left_out_are_dropped(dtype: torch.dtype) -> None:
    logits, labels = held().logits.to(dtype), held().labels
    given = Features(logits=logits, labels=labels)
    for task in left_out_tasks(("energy",), Features(logits=train().logits, labels=train().labels), given, FOLDS, 0):
        left = left_out(task)
        kept = [c for c in range(CLASSES) if c not in left]
        expected = -logsumexp(logits.double().numpy()[:, kept], axis=1)
        known = np.isin(labels, kept)
        close = {"rtol": 1e-12 if dtype == torch.float64 else 1e-6}
        np.testing.assert_allclose(task.real[:, 0], expected[known], **close)
        np.testing.assert_allclose(task.other[:, 0], expected[~known], **close)


def test_every_class_is_left_out_once_in_groups_of_like_size() -> None:
    dealt = []
    for seed in range(4):
        tasks = left_out_tasks(("energy",), train(), held(), FOLDS, seed)
        groups = [left_out(task) for task in tasks]
        assert sorted(c for group in groups for c in group) == list(range(CLASSES))
        assert sorted(map(len, groups)) == [2, 2, 3]
        assert all(len(task.real) + len(task.other) == len(held()) for task in tasks)
        dealt.append(groups)
    assert any(groups != dealt[0] for groups in dealt), "the seed deals the groups"
    assert dealt[0] == [left_out(task) for task in left_out_tasks(("energy",), train(), held(), FOLDS, 0)]


def test_several_priors_stand_side_by_side() -> None:
    names = ("energy", "gmm", "relative-gmm", "gmm-joint@early")
    together = left_out_tasks(names, train(), held(), FOLDS, 0)
    for k, name in enumerate(names):
        for one, all_ in zip(left_out_tasks((name,), train(), held(), FOLDS, 0), together, strict=True):
            assert torch.equal(one.real[:, 0], all_.real[:, k])
            assert torch.equal(one.other[:, 0], all_.other[:, k])


def test_each_kind_of_distortion_is_told_from_the_held_out_samples() -> None:
    priors = {name: create_prior(name).fit(train()) for name in ("energy", "gmm-joint")}
    contrast = samples(torch.tensor([0, 4, 4, 1, 0, 4]), seed=5)
    tasks = distortion_tasks(priors, held(), contrast)
    assert [task.name for task in tasks] == ["kind 0", "kind 1", "kind 4"]
    for task, rows in zip(tasks, ([0, 4], [3], [1, 2, 5]), strict=True):
        assert torch.equal(task.real, matrix(priors, held()))
        assert torch.equal(task.other, matrix(priors, contrast[rows]))
    assert torch.equal(tasks[0].real[:, 1], priors["gmm-joint"].score(held()))


def test_distortions_without_their_kinds_are_refused() -> None:
    with pytest.raises(InputError, match=r"do not say which distortion.*Extractor\.contrast"):
        distortion_tasks({"gmm": create_prior("gmm").fit(train())}, held(), Features(avg=held().avg))


@pytest.mark.parametrize(
    ("folds", "labels", "message"),
    [
        (FOLDS, None, "no labels for folds=3"),
        (4, train().labels, "two classes for each; there are 7 classes for folds=4. Use fewer folds, or none"),
        (1, train().labels, "at least two folds"),
        (-2, train().labels, "at least two folds"),
        (FOLDS, train().labels.clamp(max=5), "each of 7 classes, numbered from 0: class 6 has none"),
        (FOLDS, train().labels - 1, "class -1, 6 has none, or is not among them"),
    ],
    ids=["no labels", "too few classes", "one fold", "negative folds", "an empty class", "a label out of range"],
)
def test_what_cannot_be_left_out(folds: int, labels: Tensor | None, message: str) -> None:
    given = Features(train().avg, labels=labels, head=train().head)
    with pytest.raises(InputError) as error:
        left_out_tasks(("energy",), given, given, folds, 0)
    assert message in str(error.value)


@pytest.mark.parametrize("name", ["knn", "msp", "vim"])
def test_a_prior_that_cannot_do_without_a_class(name: str) -> None:
    with pytest.raises(InputError, match=f"{name} cannot be judged by classes that are left out.*folds=0"):
        left_out_tasks(("gmm", name), train(), held(), FOLDS, 0)


def test_a_group_without_held_out_samples() -> None:
    few = held()[held().labels == 3]
    with pytest.raises(InputError, match=r"No held-out sample is of a class that group \d leaves (in|out)"):
        left_out_tasks(("energy",), train(), few, FOLDS, 0)
