"""Extraction to disk: interrupted at any moment and run again, it ends with the same bytes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import heat_ood
from heat_ood.errors import FormatError, InputError, Notice
from heat_ood.features import Extractor, Features
from heat_ood.features._manifest import read_manifest


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))


def data(n: int = 22) -> TensorDataset:
    g = torch.Generator().manual_seed(1)
    return TensorDataset(torch.rand(n, 3, 6, 6, generator=g), torch.arange(n) % 3)


class StopError(Exception):
    """What interrupts a run."""


class Interrupted:
    """A loader that fails, or is stopped by hand, after some batches."""

    def __init__(self, loader: Any, after: int, error: type[BaseException] = StopError) -> None:
        self.loader, self.after, self.error = loader, after, error

    def __iter__(self) -> Iterator[Any]:
        for i, batch in enumerate(self.loader):
            if i == self.after:
                raise self.error
            yield batch


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.fixture
def whole(tmp_path: Path) -> dict[str, bytes]:
    Extractor(network(), layers="stages").extract(DataLoader(data(), batch_size=5), tmp_path / "whole")
    return contents(tmp_path / "whole")


@pytest.mark.parametrize("error", [StopError, KeyboardInterrupt])
@pytest.mark.parametrize("after", [0, 1, 3, 4])
def test_interrupted_and_run_again_gives_the_same_bytes(
    tmp_path: Path, whole: dict[str, bytes], after: int, error: type[BaseException]
) -> None:
    loader, path = DataLoader(data(), batch_size=5), tmp_path / "part"
    with pytest.raises(error):
        Extractor(network(), layers="stages").extract(Interrupted(loader, after, error), path)
    with pytest.raises(FormatError, match="not finished"):
        Features.open(path)
    features = Extractor(network(), layers="stages").extract(loader, path)
    assert contents(path) == whole
    assert len(features) == 22


def test_stored_equals_in_memory(tmp_path: Path) -> None:
    extractor, loader = Extractor(network(), layers=("0",)), DataLoader(data(), batch_size=5)
    stored, memory = extractor.extract(loader, tmp_path / "s"), extractor.extract(loader)
    assert stored.columns.keys() == memory.columns.keys()
    assert all(torch.equal(stored.columns[k], memory.columns[k]) for k in memory.columns)
    assert torch.equal(stored.labels, memory.labels)
    assert torch.equal(stored.logits, memory.logits)
    assert (None, "logits") not in stored.columns
    assert stored.fingerprint == memory.fingerprint == extractor.fingerprint


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_stored_type(tmp_path: Path, dtype: torch.dtype) -> None:
    loader = DataLoader(data(), batch_size=5)
    features = Extractor(network()).extract(loader, tmp_path, dtype=dtype)
    assert features.avg.dtype == features.std.dtype == dtype
    with pytest.raises(InputError, match=r"are torch\.float.*overwrite"):
        Extractor(network()).extract(loader, tmp_path)


class Counting(Dataset[Any]):
    """Labels listed beside the samples, as torchvision's data sets have them; counts what is loaded."""

    identity = "the test's own"

    def __init__(self, listed: bool) -> None:
        self.data, self.loaded = data(), []
        if listed:
            self.targets = self.data.tensors[1].tolist()

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        self.loaded.append(index)
        x, y = self.data[index]
        return x, int(y)


@pytest.mark.parametrize("listed", [True, False])
def test_listed_labels_spare_the_loading_of_what_is_done(tmp_path: Path, listed: bool) -> None:
    loader = DataLoader(Counting(listed), batch_size=5)
    Extractor(network(), layers="stages").extract(loader, tmp_path / "whole")
    with pytest.raises(StopError):
        Extractor(network(), layers="stages").extract(Interrupted(loader, 2), tmp_path / "part")
    loader.dataset.loaded.clear()
    Extractor(network(), layers="stages").extract(loader, tmp_path / "part")
    assert loader.dataset.loaded == list(range(10 if listed else 0, 22))
    assert contents(tmp_path / "part") == contents(tmp_path / "whole")


def test_a_finished_store_is_opened_without_a_pass(tmp_path: Path) -> None:
    loader, model = DataLoader(data(), batch_size=5), network()
    Extractor(model).extract(loader, tmp_path)
    model.register_forward_pre_hook(lambda *_: pytest.fail("a pass"))
    assert len(Extractor(model).extract(loader, tmp_path)) == 22
    with pytest.raises(InputError, match=r"22 samples, but the loader has 20"):
        Extractor(model).extract(DataLoader(data(20), batch_size=5), tmp_path)


def test_another_model_or_other_layers_are_refused(tmp_path: Path) -> None:
    loader = DataLoader(data(), batch_size=5)
    first = Extractor(network()).extract(loader, tmp_path)
    for other in (Extractor(network(1)), Extractor(network(), layers=("0",))):
        with pytest.raises(InputError, match=r"another model.*overwrite=True"):
            other.extract(loader, tmp_path)
    again = Extractor(network(1)).extract(loader, tmp_path, overwrite=True)
    assert not torch.equal(first.avg, again.avg)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda d: DataLoader(d, batch_size=4), "Batch 1 has 4 samples; it had 5"),
        (lambda d: DataLoader(TensorDataset(d.tensors[0], d.tensors[1].flip(0)), batch_size=5), "labels of batch 1"),
        (lambda d: DataLoader(TensorDataset(d.tensors[0]), batch_size=5), "labels of batch 1"),
        (lambda d: DataLoader(TensorDataset(*(t[:5] for t in d.tensors)), batch_size=5), "more than the loader yields"),
        (lambda d: DataLoader(d, batch_size=5, shuffle=True), "shuffles"),
    ],
)
def test_resuming_with_another_loader_is_refused(tmp_path: Path, other: Any, message: str) -> None:
    with pytest.raises(StopError):
        Extractor(network()).extract(Interrupted(DataLoader(data(), batch_size=5), 2), tmp_path)
    before = contents(tmp_path)
    with pytest.raises(InputError, match=message):
        Extractor(network()).extract(other(data()), tmp_path)
    assert contents(tmp_path) == before


def test_resuming_without_labels_and_with_workers(tmp_path: Path) -> None:
    images = TensorDataset(data().tensors[0])
    loader = DataLoader(images, batch_size=5, num_workers=1, drop_last=True)
    with pytest.raises(StopError):
        Extractor(network()).extract(Interrupted(loader, 2), tmp_path / "a")
    Extractor(network()).extract(loader, tmp_path / "a")
    features = Extractor(network()).extract(DataLoader(images, batch_size=5, drop_last=True), tmp_path / "b")
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert len(features) == 20


def test_other_files_are_safe(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    for overwrite in (False, True):
        with pytest.raises(InputError, match="holds no features"):
            Extractor(network()).extract(DataLoader(data()), tmp_path, overwrite=overwrite)
    with pytest.raises(InputError, match="is a file"):
        Extractor(network()).extract(DataLoader(data()), tmp_path / "thesis.txt")
    assert (tmp_path / "thesis.txt").read_text() == "precious"


def test_non_finite_batch_leaves_a_store_that_can_be_continued(tmp_path: Path) -> None:
    images, labels = data().tensors
    bad = images.clone()
    bad[12] = float("nan")
    with pytest.raises(InputError, match="avg is not finite for 1 of 5"):
        Extractor(network()).extract(DataLoader(TensorDataset(bad, labels), batch_size=5), tmp_path)
    assert len(Extractor(network()).extract(DataLoader(data(), batch_size=5), tmp_path)) == 22


def test_progress_is_quiet_off_a_terminal(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    Extractor(network()).extract(DataLoader(data(), batch_size=5), tmp_path)
    assert capfd.readouterr() == ("", "")


SCRIPT = """
import os, sys, time
import torch
from torch import nn
torch.set_num_threads(1)
from heat_ood.features import Extractor, _streaming as streaming

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))

def run(path, pause):
    g = torch.Generator().manual_seed(1)
    loader = [(torch.rand(3, 3, 6, 6, generator=g), torch.arange(3)) for _ in range(400)]
    model.register_forward_hook(lambda *_: time.sleep(pause))
    Extractor(model, layers=("0",)).extract(loader, path)

for line in sys.stdin:  # import once, then a fork for each run
    path, pause = line.split()
    child = os.fork()
    if child == 0:
        run(path, float(pause))
        os._exit(0)
    print(child, flush=True)
    os.waitpid(child, 0)
    print("done", flush=True)
"""


def written(path: Path) -> int:
    """How many samples there are; a kill may come before there is a manifest."""
    return read_manifest(path).count if (path / "manifest.json").is_file() else 0


def test_twenty_kills(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(Path(heat_ood.__file__).parents[1])}
    path, chance, kills = tmp_path / "killed", random.Random(0), 0
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as server:

        def start(target: Path, pause: float) -> int:
            server.stdin.write(f"{target} {pause}\n")
            server.stdin.flush()
            return int(server.stdout.readline())

        start(tmp_path / "whole", 0)
        assert server.stdout.readline() == "done\n"
        while kills < 20 or (written(path) == 0 and kills < 200):  # a busy machine may not get to a batch
            child = start(path, 0.005)
            time.sleep(chance.uniform(0.0, 0.08) * (1 + kills // 20))
            os.kill(child, signal.SIGKILL)
            assert server.stdout.readline() == "done\n"
            with pytest.raises(FormatError):
                Features.open(path)
            kills += 1
        assert read_manifest(path).count > 0
        start(path, 0)
        assert server.stdout.readline() == "done\n"
        server.stdin.close()
    assert contents(path) == contents(tmp_path / "whole")
    assert len(Features.open(path)) == 1200


def test_other_samples_of_the_same_number_are_refused(tmp_path: Path) -> None:
    """Another loader with as many samples returned the old features and labels without a word."""
    first = data()
    other = TensorDataset(first.tensors[0] + 1, first.tensors[1])
    Extractor(network()).extract(DataLoader(first, batch_size=5), tmp_path)
    with pytest.raises(InputError, match=r"of other samples.*overwrite=True"):
        Extractor(network()).extract(DataLoader(other, batch_size=5), tmp_path)
    with pytest.warns(Notice, match="are there already, and are reused"):
        Extractor(network()).extract(DataLoader(first, batch_size=5), tmp_path)


def test_samples_that_change_at_each_reading_are_not_told_apart(tmp_path: Path) -> None:
    class Augmented(Dataset[Any]):
        def __len__(self) -> int:
            return 22

        def __getitem__(self, index: int) -> tuple[Tensor, int]:
            return data()[index][0] + torch.rand(()), int(data()[index][1])

    loader = DataLoader(Augmented(), batch_size=5)
    with pytest.warns(Notice, match="reused"):
        assert [len(Extractor(network()).extract(loader, tmp_path)) for _ in range(2)] == [22, 22]


def test_what_features_saw_travels_with_them(tmp_path: Path) -> None:
    from heat_ood.features import Features

    images = data()
    images.classes, images.root = ["a", "b", "c"], "there"  # type: ignore[attr-defined]
    extractor = Extractor(network(), layers="stages", name="mine:small", weights="small.safetensors")
    for path in (tmp_path / "stored", None):
        features = extractor.extract(DataLoader(images, batch_size=5), path)
        seen = features[3:].seen
        assert (seen.model, seen.weights, seen.classes) == ("mine:small", "small.safetensors", ("a", "b", "c"))
        assert seen.source == "there"
        assert len(seen.samples) == 33  # by names and by contents
    features.save(tmp_path / "copy")
    assert Features.open(tmp_path / "copy").seen == features.seen
