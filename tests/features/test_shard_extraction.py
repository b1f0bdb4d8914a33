"""``Extractor.extract(…, shard=…)``: blocks of a loader, each by itself, whose union is the whole."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from heat_ood import Extractor
from heat_ood.errors import InputError
from heat_ood.features import Features, Shard, digest_of_samples, merge_shards, read_manifest


def extractor(seed: int = 0) -> Extractor:
    torch.manual_seed(seed)
    return Extractor(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)))


DATA = TensorDataset(torch.rand(100, 4, generator=torch.Generator().manual_seed(0)), torch.arange(100) % 3)


def batches(loader: Iterable[Any]) -> list[Any]:
    return list(loader)


@pytest.mark.parametrize("kind", [lambda loader: loader, batches])
def test_all_parts_are_the_whole_to_the_bit(tmp_path: Path, kind: Any) -> None:
    loader = kind(DataLoader(DATA, batch_size=2))
    one = extractor().extract(loader, tmp_path / "one", progress=False)
    for number in (1, 2, 0):
        extractor().extract(loader, tmp_path / "many", progress=False, shard=(number, 3))
    assert digest_of_samples(merge_shards(tmp_path / "many")) == digest_of_samples(one)
    first = read_manifest(tmp_path / "many" / "shard-00001").shard
    assert first == (Shard(1, 3, 32, 100) if isinstance(loader, DataLoader) else Shard(1, 3, 16, 50))


def test_a_part_in_memory() -> None:
    loader = DataLoader(DATA, batch_size=2)
    whole = extractor().extract(loader, progress=False)
    part = extractor().extract(loader, progress=False, shard="2/3")
    assert torch.equal(part.avg, whole.avg[66:])


def test_parts_of_other_samples_or_another_number_are_refused(tmp_path: Path) -> None:
    loader, net = DataLoader(DATA, batch_size=2), extractor()
    net.extract(loader, tmp_path, progress=False, shard="1/3")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        net.extract(loader, tmp_path, progress=False, shard="1/3")
    assert "are there already" in str(said[0].message)
    with pytest.raises(InputError, match=r"another part of the samples \(shard 1/3 of 100; now shard 1/4 of 100\)"):
        net.extract(loader, tmp_path, progress=False, shard="1/4")
    with pytest.raises(InputError, match="another model"):
        extractor(1).extract(loader, tmp_path, progress=False, shard="1/3")
    net.extract(loader, tmp_path, progress=False, shard="1/4", overwrite=True)
    assert read_manifest(tmp_path / "shard-00001").shard == Shard(1, 4, 25, 100)


def test_what_cannot_be_cut(tmp_path: Path) -> None:
    net = extractor()
    for loader, words in (
        (iter([torch.rand(2, 4)]), "cannot be cut into shards"),
        (DataLoader(DATA, batch_size=2, sampler=[3, 1, 2]), "cannot be cut into shards"),
        (DataLoader(DATA, batch_size=2, drop_last=True), "drop_last=False"),
        (DataLoader(DATA, batch_size=2, shuffle=True), "shuffles"),
        ([torch.rand(2, 4)] * 2, "2 batches for 3 shards"),
    ):
        with pytest.raises(InputError, match=words):
            net.extract(loader, tmp_path, progress=False, shard="0/3")
    Features(avg=torch.rand(2, 2)).save(tmp_path)
    with pytest.raises(InputError, match="not in shards"):
        net.extract(DataLoader(DATA), tmp_path, progress=False, shard="0/3")


def test_a_shard_under_another_name_is_refused(tmp_path: Path) -> None:
    for number in range(2):
        extractor().extract(DataLoader(DATA, batch_size=2), tmp_path, progress=False, shard=(number, 2))
    (tmp_path / "shard-00000").rename(tmp_path / "x")
    (tmp_path / "shard-00001").rename(tmp_path / "shard-00000")
    (tmp_path / "x").rename(tmp_path / "shard-00001")
    with pytest.raises(InputError, match="is shard 1/2 by its manifest"):
        merge_shards(tmp_path)
    Features(avg=torch.rand(2, 2)).save(tmp_path / "shard-00002")
    with pytest.raises(InputError, match="does not say which part"):
        merge_shards(tmp_path)
