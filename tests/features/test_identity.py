"""Features are reused for the samples that they are of, and for no others, be they changed, fewer or more."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from heat_ood.errors import FormatError, InputError, Notice
from heat_ood.features import Extractor, Features
from heat_ood.features._identity import identity_of, same_samples
from heat_ood.features._manifest import read_manifest
from heat_ood.images import Preprocessing, UnreadableImageError, open_images
from store_data import edit, make_earlier, same


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))


def data(n: int = 40) -> TensorDataset:
    g = torch.Generator().manual_seed(1)
    return TensorDataset(torch.rand(n, 3, 6, 6, generator=g), torch.arange(n) % 3)


def verdict(a: Any, b: Any) -> str:
    return same_samples(*(identity_of(x if isinstance(x, list) else DataLoader(x, batch_size=5)) for x in (a, b)))


# Images


def picture(file: Path, seed: int, size: int = 8) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (size, size, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i in range(12):
        picture(tmp_path / "images" / "abc"[i % 3] / f"{i:02d}.png", i)
        os.utime(tmp_path / "images" / "abc"[i % 3] / f"{i:02d}.png", (1e9, 1e9))
    return tmp_path / "images"


class Listed(Dataset[Any]):
    """Files beside labels, as torchvision's ImageFolder has them."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.samples = [(str(file), ord(file.parent.name) - 97) for file in sorted(root.rglob("*.png"))]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        path, label = self.samples[index]
        return torch.from_numpy(np.array(Image.open(path))).permute(2, 0, 1) / 255, label


def opened(folder: Path) -> Any:
    images = open_images(folder)
    images.preprocessing = Preprocessing(size=(8, 8))
    return images


@pytest.mark.parametrize("kind", [opened, Listed])
@pytest.mark.parametrize("finished", [True, False])
def test_images_that_changed_under_their_names_are_noticed(
    tmp_path: Path, folder: Path, kind: Any, finished: bool
) -> None:
    """The old features came back without a word."""

    def batches(dataset: Any) -> DataLoader[Any]:
        return DataLoader(dataset, batch_size=4)

    if finished:
        Extractor(network()).extract(batches(kind(folder)), tmp_path / "f")
    else:
        (folder / "c" / "11.png").rename(tmp_path / "11.png")
        (folder / "c" / "11.png").write_bytes((tmp_path / "11.png").read_bytes()[:60])
        with pytest.raises((InputError, OSError)):
            Extractor(network()).extract(batches(kind(folder)), tmp_path / "f")
    picture(folder / "b" / "04.png", 99)
    with pytest.raises(InputError, match=r"have changed since the features in .*overwrite=True.*Features\.open"):
        Extractor(network()).extract(batches(kind(folder)), tmp_path / "f")
    if not finished:
        picture(folder / "c" / "11.png", 11)
    again = Extractor(network()).extract(batches(kind(folder)), tmp_path / "f", overwrite=True)
    assert same(again, Extractor(network()).extract(batches(kind(folder))))
    with pytest.warns(Notice, match="reused"):
        Extractor(network()).extract(batches(kind(folder)), tmp_path / "f")


@pytest.mark.parametrize("kind", [opened, Listed])
def test_size_and_time_tell_and_the_way_to_the_folder_does_not(
    folder: Path, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    before = identity_of(DataLoader(kind(folder)))
    assert before == identity_of(DataLoader(kind(Path("images"))))
    os.utime(folder / "a" / "06.png", (1e9, 1e9 + 1))
    touched = identity_of(DataLoader(kind(folder)))
    assert same_samples(before, touched) == "changed"
    os.utime(folder / "a" / "06.png", (1e9, 1e9))
    assert identity_of(DataLoader(kind(folder))) == before
    (folder / "a" / "06.png").write_bytes((folder / "a" / "06.png").read_bytes() + b"\0")
    os.utime(folder / "a" / "06.png", (1e9, 1e9))
    assert same_samples(before, identity_of(DataLoader(kind(folder)))) == "changed"


def test_an_image_that_could_not_be_read_is_replaced_and_the_run_goes_on(tmp_path: Path, folder: Path) -> None:
    loader = DataLoader(opened(folder), batch_size=4)
    whole = Extractor(network()).extract(loader)
    good = (folder / "b" / "10.png").read_bytes()
    (folder / "b" / "10.png").write_bytes(good[:60])
    with pytest.raises(UnreadableImageError):
        Extractor(network()).extract(loader, tmp_path / "f")
    assert read_manifest(tmp_path / "f").count == 4
    (folder / "b" / "10.png").write_bytes(good)
    model, passes = network(), list[int]()
    extractor = Extractor(model)
    model.register_forward_hook(lambda *_: passes.append(1))
    assert same(extractor.extract(loader, tmp_path / "f"), whole)
    assert len(passes) == 2 + 1, "the first batch is read twice: see test_extractor.py"
    with pytest.warns(Notice, match="reused"):  # and is then of the images as they are now
        Extractor(network()).extract(loader, tmp_path / "f")


# Arrays, and what lists nothing


def test_every_number_of_an_array_counts() -> None:
    first = data()
    for row in range(40):
        images = first.tensors[0].clone()
        images[row, 1, 2, 3] += 1
        assert verdict(first, TensorDataset(images, first.tensors[1])) != "same"
    labels = first.tensors[1].clone()
    labels[17] = 2 - labels[17]
    assert verdict(first, TensorDataset(first.tensors[0], labels)) != "same"
    assert verdict(first, TensorDataset(*(t.clone() for t in first.tensors))) == "same"
    assert verdict(first, TensorDataset(first.tensors[0].double(), first.tensors[1])) == "others"


def test_every_batch_of_a_list_counts() -> None:
    def batches() -> list[Any]:
        return [(x.clone(), y) for x, y in DataLoader(data(), batch_size=8)]

    for number in range(5):
        other = batches()
        other[number][0][3] = 0
        assert verdict(batches(), other) != "same"
    assert verdict(batches(), batches()) == "same"
    assert verdict(batches(), [{"x": x, "labels": y} for x, y in batches()]) != "same"
    assert identity_of([object(), object()]) is not None
    assert identity_of([torch.rand(2, 3, dtype=torch.bfloat16)]) is not None


def test_subsets_and_unions_are_told_apart(folder: Path) -> None:
    images, arrays = opened(folder), data()
    assert verdict(Subset(images, range(5)), Subset(images, range(5, 10))) != "same"
    assert verdict(Subset(arrays, [0, 7, 8, 39]), Subset(arrays, [0, 7, 8, 39])) == "same"
    order = list(range(40))
    order[10], order[11] = 11, 10
    assert verdict(Subset(arrays, order), arrays) != "same"
    assert verdict(ConcatDataset([arrays, Subset(arrays, [0])]), ConcatDataset([Subset(arrays, [0]), arrays])) != "same"


class Computed(Dataset[Any]):
    """Nothing tells of its samples but they themselves."""

    def __init__(self, changed: int | None = None) -> None:
        self.changed = changed

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        x, y = data()[index]
        return x + (index == self.changed), int(y)


def test_more_than_four_samples_are_looked_at() -> None:
    noticed = [verdict(Computed(), Computed(row)) != "same" for row in range(40)]
    assert noticed[0]
    assert noticed[39]
    assert sum(noticed) >= 32


@pytest.mark.parametrize("names", [True, False])
def test_features_of_an_earlier_version_are_reused_as_far_as_it_knew(tmp_path: Path, folder: Path, names: bool) -> None:
    """Its digest was of names alone: it neither refuses what it knows nor passes what it knows to differ."""
    loader = DataLoader(opened(folder), batch_size=4)
    Extractor(network()).extract(loader, tmp_path / "f")
    seen = dict(read_manifest(tmp_path / "f").seen)
    seen["samples"] = seen["samples"].partition("/")[0]
    assert len(seen["samples"]) == 16
    make_earlier(tmp_path / "f", seen=seen)
    if names:
        (folder / "a" / "00.png").rename(folder / "a" / "99.png")
        with pytest.raises(InputError, match="of other samples"):
            Extractor(network()).extract(DataLoader(opened(folder), batch_size=4), tmp_path / "f")
    else:
        with pytest.warns(Notice, match="reused"):
            Extractor(network()).extract(loader, tmp_path / "f")


# Loaders that end early


class Sized:
    """A loader of one's own that says how many batches it has."""

    def __init__(self, batches: list[Any], gives: int) -> None:
        self.batches, self.gives = batches, gives

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.batches[: self.gives])


def batches(n: int = 40) -> list[Any]:
    return list(DataLoader(data(n), batch_size=8))


class Ending(Dataset[Any]):
    """A data set that stops in the middle, which a loader takes for its end."""

    identity = "the test's own"

    def __init__(self, ends: int) -> None:
        self.ends = ends

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        if index >= self.ends:
            raise StopIteration
        return data()[index]


@pytest.mark.parametrize(
    ("short", "full"),
    [
        (Sized(batches(), 3), Sized(batches(), 5)),
        (DataLoader(Ending(25), batch_size=8), DataLoader(Ending(99), batch_size=8)),
    ],
)
def test_a_loader_that_ends_early_leaves_an_unfinished_store(tmp_path: Path, short: Any, full: Any) -> None:
    for _ in range(2):
        with pytest.raises(InputError, match=r"ended after 3 of the 5 batches .*not finished.*iter\(loader\)"):
            Extractor(network()).extract(short, tmp_path)
        with pytest.raises(FormatError, match="24 samples so far"):
            Features.open(tmp_path)
    assert same(Extractor(network()).extract(full, tmp_path), Extractor(network()).extract(batches()))


@pytest.mark.parametrize("full", [Sized(batches(), 5), batches(), DataLoader(data(), batch_size=8)])
def test_what_a_short_generator_left_is_not_taken_for_the_whole(tmp_path: Path, full: Any) -> None:
    Extractor(network()).extract(iter(batches()[:3]), tmp_path)
    with pytest.raises(InputError, match=r"holds features of (24 samples|3 batches), but the loader has (40|5)"):
        Extractor(network()).extract(full, tmp_path)


def test_a_generator_meets_a_finished_store_with_a_word_on_its_length(tmp_path: Path) -> None:
    Extractor(network()).extract(iter(batches()[:3]), tmp_path)
    with pytest.warns(Notice, match="How many samples this loader has is not known"):
        assert len(Extractor(network()).extract(iter(batches()), tmp_path)) == 24


def test_a_stream_may_guess_its_length(tmp_path: Path) -> None:
    class Stream(IterableDataset[Any]):
        def __len__(self) -> int:
            return 100

        def __iter__(self) -> Iterator[Any]:
            return iter(data())

    assert len(Extractor(network()).extract(DataLoader(Stream(), batch_size=8), tmp_path)) == 40


def test_a_collate_that_drops_samples_is_no_early_end(tmp_path: Path) -> None:
    def few(samples: list[Any]) -> Any:
        return torch.stack([x for x, _ in samples[1:]]), torch.tensor([int(y) for _, y in samples[1:]])

    assert len(Extractor(network()).extract(DataLoader(data(), batch_size=8, collate_fn=few), tmp_path)) == 35


def test_hostile_batches_of_an_unfinished_store_do_not_hang(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="ended after 3"):
        Extractor(network()).extract(Sized(batches(), 3), tmp_path)
    (tmp_path / "manifest.journal").unlink()
    edit(tmp_path, count=24, batches=[[0, 2**52], [24, 1]])
    with pytest.raises(InputError, match="it had 0"):
        Extractor(network()).extract(Sized(batches(), 5), tmp_path)
