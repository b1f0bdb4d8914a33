"""Features of distorted images: of the images that are told, the same for the same seed, and resumable."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from heat_ood import HEAT, Residual
from heat_ood.errors import FormatError, InputError
from heat_ood.features import KINDS, Extractor, Features
from heat_ood.features._contrast import Distorted
from heat_ood.features._distortions import CONTRAST
from heat_ood.features._manifest import FEATURES_FILE, read_manifest
from heat_ood.metrics import auroc
from store_data import make_earlier

CLASSES = 3


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, CLASSES))


def data(n: int = 22) -> TensorDataset:
    g = torch.Generator().manual_seed(1)
    return TensorDataset(torch.rand(n, 3, 8, 8, generator=g), torch.arange(n) % CLASSES)


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def same(a: Features, b: Features) -> bool:
    assert a.columns.keys() == b.columns.keys()
    return torch.equal(a.labels, b.labels) and all(torch.equal(a.columns[k], b.columns[k]) for k in a.columns)


# What there is


def test_features_are_those_of_the_distorted_images() -> None:
    extractor, batches = Extractor(network(), layers="stages"), [data().tensors[0][:12], data().tensors[0][12:]]
    features = extractor.contrast(batches, kinds=("jigsaw-2", "noise", "mixup"), seed=5)
    distorted = list(Distorted(batches, extractor.network, ("jigsaw-2", "noise", "mixup"), seed=5))
    by_hand = Features.concatenate([extractor((images, kind)) for images, kind in distorted])
    assert same(features, by_hand)
    assert features.labels.bincount().tolist() in ([7, 7, 8], [7, 8, 7], [8, 7, 7])
    for (images, kind), batch in zip(distorted, batches, strict=True):
        for image, original, number in zip(images, batch, kind, strict=True):
            moved = torch.equal(image.flatten().sort().values, original.flatten().sort().values)
            assert moved == (number == 0)
            assert not torch.equal(image, original)


def test_each_batch_has_a_generator_of_its_own() -> None:
    """The same images twice are distorted in two ways, so that a class of equal batches does not repeat itself."""
    images = data().tensors[0]
    (first, _), (second, _) = Distorted([images, images], network(), ("noise",))
    assert not torch.allclose(first, second)


def test_a_plain_loader_is_read_in_the_seeds_order() -> None:
    images = data().tensors[0]
    loader = DataLoader(data(), batch_size=5)
    order = torch.from_numpy(np.random.default_rng(3).permutation(22))
    found = torch.cat([x for x, _ in Distorted(loader, network(), ("jigsaw-2",), seed=3)])
    assert torch.equal(found.flatten(1).sort().values, images[order].flatten(1).sort().values)
    assert order.tolist() != list(range(22))


def test_the_kinds_default_to_all() -> None:
    features = Extractor(network()).contrast(DataLoader(data(39), batch_size=13))
    assert tuple(KINDS) == CONTRAST
    assert features.labels.bincount().tolist() == [3] * len(KINDS)


def test_every_kind_at_once_and_a_head_of_fewer_classes(tmp_path: Path) -> None:
    features = Extractor(network()).contrast(DataLoader(data(39), batch_size=13), tmp_path, tuple(KINDS))
    assert features.labels.bincount().tolist() == [3] * len(KINDS)
    assert Features.open(tmp_path).labels.max() == len(KINDS) - 1 > CLASSES


@pytest.mark.parametrize("stored", [True, False])
def test_the_seed_decides(tmp_path: Path, stored: bool) -> None:
    def run(name: str, seed: int) -> Features:
        torch.manual_seed(len(name))
        loader = DataLoader(data(), batch_size=5, shuffle=True)
        return Extractor(network()).contrast(loader, tmp_path / name if stored else None, seed=seed)

    assert same(run("a", 0), run("ab", 0))
    assert not same(run("a", 0), run("abc", 1))
    if stored:
        assert contents(tmp_path / "a") == contents(tmp_path / "ab")


def test_the_model_and_the_data_stay_as_they_are() -> None:
    model, dataset = network().train(), data()
    before, images = [p.clone() for p in model.parameters()], dataset.tensors[0].clone()
    Extractor(model).contrast(DataLoader(dataset, batch_size=5), kinds=tuple(KINDS))
    assert model.training
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert torch.equal(dataset.tensors[0], images)


# How many


@pytest.mark.parametrize("samples", [1, 4, 5, 6, 10, 21, 22])
@pytest.mark.parametrize("plain", [True, False])
def test_samples(tmp_path: Path, samples: int, plain: bool) -> None:
    loader: Any = DataLoader(data(), batch_size=5)
    loader = loader if plain else list(loader)
    features = Extractor(network()).contrast(loader, tmp_path / "part", samples=samples)
    assert len(features) == len(features.labels) == samples
    assert same(features, Extractor(network()).contrast(loader, samples=samples))
    if samples % 5 == 0:  # whole batches are those of the whole
        assert same(features, Extractor(network()).contrast(loader)[:samples])


@pytest.mark.parametrize("plain", [True, False])
def test_more_samples_than_there_are_go_round_again(tmp_path: Path, plain: bool) -> None:
    loader: Any = DataLoader(data(), batch_size=5)
    loader = loader if plain else list(loader)
    features = Extractor(network()).contrast(loader, tmp_path / "more", samples=50)
    assert len(features) == len(features.labels) == 50
    assert same(features[:20], Extractor(network()).contrast(loader)[:20]), "the first round is as it was"
    assert len({tuple(row.tolist()) for row in features.avg}) == 50, "no distorted image comes twice"
    assert same(features, Extractor(network()).contrast(loader, samples=50))
    assert same(features, Extractor(network()).contrast(loader, tmp_path / "more", samples=50)), "from the store"


def test_every_image_comes_once_a_round() -> None:
    images = torch.arange(7.0).view(-1, 1, 1, 1) + torch.zeros(7, 3, 8, 8)
    found = Distorted(DataLoader(TensorDataset(images), batch_size=3), network(), ("jigsaw-2",), samples=16)
    numbers = torch.cat([x[:, 0, 0, 0] for x, _ in found]).long().tolist()
    assert [sorted(numbers[:7]), sorted(numbers[7:14]), len(numbers)] == [[*range(7)], [*range(7)], 16]
    assert numbers[:7] != numbers[7:14]


def test_an_interruption_in_the_second_round(tmp_path: Path) -> None:
    def run(path: Path, reads: int) -> Features:
        return Extractor(network()).contrast(DataLoader(Failing(reads), batch_size=5), path, samples=40)

    run(tmp_path / "whole", 40)
    with pytest.raises(StopError):
        run(tmp_path / "parts", 33)
    run(tmp_path / "parts", 40)
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


def test_what_can_be_read_once_ends_when_it_ends() -> None:
    batches = iter([data().tensors[0][:5], data().tensors[0][5:10]])
    assert len(Extractor(network()).contrast(batches, samples=1000)) == 10


def test_samples_are_drawn_from_all_classes() -> None:
    images = torch.arange(3.0).repeat_interleave(100).view(-1, 1, 1, 1) + torch.zeros(300, 3, 8, 8)
    found = Distorted(DataLoader(TensorDataset(images), batch_size=10), network(), ("jigsaw-2",), samples=60)
    classes = torch.cat([x[:, 0, 0, 0] for x, _ in found]).long()
    assert classes.bincount(minlength=3).min() > 10


def test_no_more_is_loaded_than_is_needed() -> None:
    def batches() -> Iterator[Tensor]:
        yield data().tensors[0][:5]
        yield data().tensors[0][5:10]
        pytest.fail("a batch too many")

    assert len(Extractor(network()).contrast(batches(), samples=10)) == 10


@pytest.mark.parametrize("samples", [0, -3])
def test_no_samples(samples: int) -> None:
    with pytest.raises(InputError, match=f"samples is at least 1, not {samples}; None"):
        Extractor(network()).contrast(DataLoader(data()), samples=samples)


# Loaders


@pytest.mark.parametrize(
    "make",
    [
        lambda d: DataLoader(d, batch_size=5, shuffle=True),
        lambda d: DataLoader(d, batch_size=5, shuffle=True, drop_last=True),
        lambda d: DataLoader(d, batch_size=5, sampler=RandomSampler(d)),
        lambda d: DataLoader(d, batch_size=5, shuffle=True, worker_init_fn=print),
    ],
    ids=["shuffle", "drop_last", "sampler", "worker_init_fn"],
)
def test_a_loader_may_shuffle(make: Any) -> None:
    expected = Extractor(network()).contrast(DataLoader(data(), batch_size=5))
    assert same(Extractor(network()).contrast(make(data())), expected)


@pytest.mark.parametrize(
    "make",
    [
        lambda d: DataLoader(d, batch_size=5, sampler=SubsetRandomSampler(range(10))),
        lambda d: DataLoader(d, batch_size=5, sampler=WeightedRandomSampler([1.0] * 22, 22)),
        lambda d: DataLoader(d, batch_size=5, sampler=RandomSampler(d, num_samples=8)),
        lambda d: DataLoader(d, batch_sampler=BatchSampler(RandomSampler(d), 5, False)),
    ],
    ids=["subset", "weighted", "part", "batch_sampler"],
)
def test_a_choice_that_changes_at_every_pass_is_refused(make: Any) -> None:
    with pytest.raises(InputError, match=r"shuffles .* Pass DataLoader\(dataset, batch_size=…, shuffle=False\)"):
        Extractor(network()).contrast(make(data()))


def test_workers_change_nothing() -> None:
    alone, helped = (DataLoader(data(), batch_size=5, num_workers=n, shuffle=True) for n in (0, 1))
    assert same(Extractor(network()).contrast(alone), Extractor(network()).contrast(helped))


@pytest.mark.parametrize("kind", ["mixup", "cutmix"])
def test_mixtures_join_classes_that_lie_apart(kind: str) -> None:
    """In a data set that is sorted by its classes, most mixtures are of two of them."""
    colours = torch.arange(10.0).repeat_interleave(40)
    images = colours.view(-1, 1, 1, 1).expand(-1, 3, 8, 8).clone()
    mixed = torch.cat([x for x, _ in Distorted(DataLoader(TensorDataset(images), batch_size=40), network(), (kind,))])
    if kind == "cutmix":
        joined = mixed.flatten(1).amax(1) > mixed.flatten(1).amin(1)
    else:
        joined = (mixed[:, 0, 0, 0] - mixed[:, 0, 0, 0].round()).abs() > 1e-6
    assert joined.double().mean() > 0.7


class Views(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(data())


def test_a_stream_is_read_as_it_comes() -> None:
    stream = DataLoader(Views(), batch_size=5)
    expected = list(DataLoader(data(), batch_size=5))
    assert same(Extractor(network()).contrast(stream), Extractor(network()).contrast(expected))


class Vision(nn.Module):
    """Called as the models of transformers are."""

    def __init__(self) -> None:
        super().__init__()
        self.net = network()

    def forward(self, pixel_values: Tensor, mask: Tensor | None = None) -> Tensor:
        scaled: Tensor = self.net(pixel_values if mask is None else pixel_values * mask.view(-1, 1, 1, 1))
        return scaled


class Dictionaries(Dataset[Any]):
    def __init__(self, *more: str) -> None:
        self.more = more

    def __len__(self) -> int:
        return 22

    def __getitem__(self, index: int) -> dict[str, Any]:
        image, label = data()[index]
        return {"pixel_values": image, "labels": int(label)} | {name: torch.tensor(1.0) for name in self.more}


@pytest.mark.parametrize("more", [(), ("mask",), ("image_id",)])
def test_dictionaries(tmp_path: Path, more: tuple[str, ...]) -> None:
    """The image of a dictionary is distorted, what else the model takes stays, and the labels are the kinds."""
    features = Extractor(Vision()).contrast(DataLoader(Dictionaries(*more), batch_size=5), tmp_path, samples=13)
    plain = Extractor(network()).contrast(DataLoader(data(), batch_size=5), samples=13)
    assert torch.equal(features.labels, plain.labels)
    torch.testing.assert_close(features.avg, plain.avg)
    torch.testing.assert_close(features.std, plain.std)


def test_a_dictionary_for_a_model_that_takes_images() -> None:
    loader = DataLoader(Dictionaries(), batch_size=5)
    assert same(Extractor(network()).contrast(loader), Extractor(network()).contrast(DataLoader(data(), batch_size=5)))


@pytest.mark.parametrize(
    ("inputs", "named"),
    [
        (torch.ones(4, 12, dtype=torch.long), r"torch.int64 \(4, 12\)"),
        ({"input_ids": torch.ones(4, 12, dtype=torch.long)}, r"torch.int64 \(4, 12\)"),
        (torch.rand(4, 12), r"torch.float32 \(4, 12\)"),
        (torch.zeros(4, 3, 8, 8, dtype=torch.uint8), r"torch.uint8 \(4, 3, 8, 8\)"),
    ],
    ids=["ids", "dictionary", "vectors", "bytes"],
)
def test_what_is_no_image_is_refused(inputs: Any, named: str) -> None:
    with pytest.raises(InputError, match=rf"Only images can be distorted.*{named}\. For other inputs pass contrast"):
        Extractor(network()).contrast([inputs])


# On disk


class StopError(Exception):
    """What interrupts a run."""


class Failing(Dataset[Any]):
    """Loads so many samples, then no more."""

    identity = "the test's own"

    def __init__(self, samples: int) -> None:
        self.data, self.left = data(), samples

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Any:
        self.left -= 1
        if self.left < 0:
            raise StopError
        return self.data[index]


@pytest.mark.parametrize("batches", [0, 1, 3, 4])
@pytest.mark.parametrize("plain", [True, False])
def test_interrupted_and_run_again_gives_the_same_bytes(tmp_path: Path, batches: int, plain: bool) -> None:
    def run(path: Path, samples: int) -> Features:
        loader: Any = DataLoader(Failing(samples), batch_size=5, shuffle=plain)
        return Extractor(network(), layers="stages").contrast(loader if plain else (b for b in loader), path, KINDS)

    run(tmp_path / "whole", 22)
    with pytest.raises(StopError):
        run(tmp_path / "part", 5 * batches + 1)
    assert read_manifest(tmp_path / "part").count == 5 * batches
    with pytest.raises(FormatError, match="not finished"):
        Features.open(tmp_path / "part")
    assert len(run(tmp_path / "part", 22)) == 22
    assert contents(tmp_path / "part") == contents(tmp_path / "whole")


def test_stored_equals_in_memory(tmp_path: Path) -> None:
    loader = DataLoader(data(), batch_size=5)
    stored = Extractor(network()).contrast(loader, tmp_path, dtype=torch.float64)
    assert stored.avg.dtype == torch.float64
    assert same(stored, Extractor(network()).contrast(loader, dtype=torch.float64))


def test_a_finished_store_is_opened_without_a_pass(tmp_path: Path) -> None:
    loader, model = DataLoader(data(), batch_size=5), network()
    first = Extractor(model).contrast(loader, tmp_path)
    model.register_forward_pre_hook(lambda *_: pytest.fail("a pass"))
    assert same(Extractor(model).contrast(loader, tmp_path), first)
    with pytest.raises(InputError, match=r"22 samples, but the loader has 20"):
        Extractor(model).contrast(DataLoader(data(20), batch_size=5), tmp_path)


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"seed": 1}, "mixup; seed 0; now distorted: jigsaw-2, mixup; seed 1"),
        ({"kinds": ("jigsaw-2",)}, "now distorted: jigsaw-2; seed 0"),
        ({"kinds": ("mixup", "jigsaw-2")}, "now distorted: mixup, jigsaw-2"),
        ({"samples": 10}, "now distorted: .*; 10 samples"),
    ],
)
def test_other_distortions_at_the_same_path_are_refused(
    tmp_path: Path, plain: bool, finished: bool, other: dict[str, Any], told: str
) -> None:
    def loader(samples: int = 22) -> Any:
        made = DataLoader(Failing(samples), batch_size=5)
        return made if plain else (batch for batch in made)

    kinds = ("jigsaw-2", "mixup")
    if finished:
        Extractor(network()).contrast(loader(), tmp_path, kinds)
    else:
        with pytest.raises(StopError):
            Extractor(network()).contrast(loader(11), tmp_path, kinds)
    before = contents(tmp_path)
    with pytest.raises(InputError, match=rf"{told}.*Choose another path, or pass overwrite=True"):
        Extractor(network()).contrast(loader(), tmp_path, **({"kinds": kinds} | other))
    assert contents(tmp_path) == before
    again = Extractor(network()).contrast(loader(), tmp_path, **({"kinds": kinds} | other), overwrite=True)
    assert same(again, Extractor(network()).contrast(loader(), **({"kinds": kinds} | other)))


def test_images_and_distorted_images_are_not_mixed(tmp_path: Path) -> None:
    loader = DataLoader(data(), batch_size=5)
    Extractor(network()).extract(loader, tmp_path / "plain")
    Extractor(network()).contrast(loader, tmp_path / "distorted")
    with pytest.raises(InputError, match=r"as the loader gives them; now distorted"):
        Extractor(network()).contrast(loader, tmp_path / "plain")
    with pytest.raises(InputError, match=r"distorted: jigsaw-2.*; now as the loader gives them"):
        Extractor(network()).extract(loader, tmp_path / "distorted")
    with pytest.raises(InputError, match="another model"):
        Extractor(network(1)).contrast(loader, tmp_path / "distorted")


def test_resuming_with_another_batch_size_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StopError):
        Extractor(network()).contrast(DataLoader(Failing(11), batch_size=5), tmp_path)
    with pytest.raises(InputError, match="Batch 1 has 4 samples; it had 5"):
        Extractor(network()).contrast(DataLoader(Failing(99), batch_size=4), tmp_path)


def test_a_store_without_an_origin_is_one_of_images(tmp_path: Path) -> None:
    """As all were before there was one."""
    loader = DataLoader(data(), batch_size=5)
    first = Extractor(network()).extract(loader, tmp_path)
    make_earlier(tmp_path)
    manifest = json.loads((tmp_path / FEATURES_FILE).read_text())
    assert manifest.pop("origin") == ""
    (tmp_path / FEATURES_FILE).write_text(json.dumps(manifest))
    assert same(Features.open(tmp_path), first)
    assert same(Extractor(network()).extract(loader, tmp_path), first)
    with pytest.raises(InputError, match="of other samples"):
        Extractor(network()).contrast(loader, tmp_path)
    (tmp_path / FEATURES_FILE).write_text(json.dumps(manifest | {"origin": 3}))
    with pytest.raises(FormatError, match="origin is 3"):
        Features.open(tmp_path)


# What it is for


@pytest.mark.filterwarnings("ignore:The residual of:RuntimeWarning")
@pytest.mark.parametrize("seed", [0, 1])
def test_contrast_teaches_a_residual_what_distortion_looks_like(seed: int) -> None:
    """Of other images than those it saw, with more kinds than there are classes."""
    torch.manual_seed(seed)
    maps = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    extractor = Extractor(nn.Sequential(maps, nn.Linear(16, CLASSES)))
    blocks = torch.rand(800, 3, 2, 2).repeat_interleave(4, 2).repeat_interleave(4, 3)
    seen, fresh = ([(x, torch.arange(50) % CLASSES) for x in half.split(50)] for half in blocks.split(400))
    kinds = ("jigsaw-4", "mixup", "cutmix", "warp")
    train, contrast = extractor.extract(seen), extractor.contrast(seen, kinds=kinds)
    pair = extractor.extract(fresh), extractor.contrast(fresh, kinds=kinds, seed=1)

    settings, found = Residual(epochs=8, hidden=32, batch=64, lr=3e-3, contrast_share=1.0), []
    for given in (None, contrast):
        heat = HEAT(("gmm-std",), residual=settings).fit(train, contrast=given, progress=False)
        found.append(auroc(*(heat.energies(features)["residual/gmm-std"] for features in pair)))
    assert found[1] > 0.65
    assert found[1] > found[0] + 0.05
