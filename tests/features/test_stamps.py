"""A shard looks at its own samples, and an extraction at each sample once, to tell whether they changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, TensorDataset

from heat_ood.features import Extractor, Shard, _stamps
from heat_ood.features._parting import part_of
from heat_ood.features._stamps import stamps_of
from heat_ood.images import open_images


class Files(Dataset[Any]):
    """Files beside labels, as torchvision's folders list them."""

    def __init__(self, root: Path, n: int = 64) -> None:
        self.root, self.samples = str(root), [(str(root / f"{i}.png"), i % 3) for i in range(n)]
        for i in range(n):
            pixels = np.random.default_rng(i).integers(0, 256, (4, 4, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / f"{i}.png")

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, row: int) -> Any:
        path, label = self.samples[row]
        return torch.from_numpy(np.asarray(Image.open(path)).copy()).permute(2, 0, 1).float(), label


def arrays(n: int = 64) -> TensorDataset:
    return TensorDataset(torch.rand(n, 3, 4, 4, generator=torch.Generator().manual_seed(0)), torch.arange(n) % 3)


def loader(data: Any) -> DataLoader[Any]:
    return DataLoader(data, batch_size=8)


@pytest.mark.parametrize("kind", ["arrays", "files", "images", "union"])
def test_a_sample_has_the_same_stamp_in_a_part_as_in_the_whole(tmp_path: Path, kind: str) -> None:
    if kind in ("files", "images"):
        files = Files(tmp_path)
        whole: Any = files if kind == "files" else open_images(tmp_path, labels=False)
    else:
        whole = arrays() if kind == "arrays" else ConcatDataset([arrays(20), Files(tmp_path, 30), arrays(14)])
    every = stamps_of(loader(whole))
    assert every is not None
    assert len(np.unique(every)) == (64 if kind != "union" else 50)  # the same array twice
    for rows in (range(16, 32), [3, 1, 60, 3], [-1, 0, -64]):
        part = stamps_of(loader(Subset(whole, rows)))
        nested = stamps_of(loader(Subset(Subset(whole, list(rows)), [2, 0])))
        assert part is not None
        assert nested is not None
        assert part.tolist() == every[list(rows)].tolist()
        assert nested.tolist() == [part[2], part[0]]


def test_a_shard_looks_at_the_files_of_its_own(tmp_path: Path) -> None:
    files = Files(tmp_path)
    part, shard = part_of(loader(files), Shard(1, 4))
    assert shard.first == 16
    before = stamps_of(part)
    for i in (0, 15, 32, 63):
        (tmp_path / f"{i}.png").unlink()
    after = stamps_of(part)
    assert before is not None
    assert after is not None
    assert before.tolist() == after.tolist()
    assert stamps_of(loader(files)) is None


@pytest.mark.parametrize("listed", [False, True])
def test_an_extraction_reads_each_sample_once_for_its_stamp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: bool
) -> None:
    stamped, stamp = [], _stamps.stamp
    monkeypatch.setattr(_stamps, "stamp", lambda *parts: (stamped.append(1), stamp(*parts))[1])
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
    samples: Any = list(loader(arrays())) if listed else loader(arrays())
    for number in range(4):
        Extractor(network).extract(samples, tmp_path / "store", shard=Shard(number, 4), progress=False)
    assert len(stamped) == (8 if listed else 64)  # a batch, or a sample, once
