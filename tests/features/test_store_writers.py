"""Who writes a store leaves the old one or the new one, alone or not, killed or not, and nothing of anyone else's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from heat_ood.errors import FormatError, InputError, Notice
from heat_ood.features import Extractor, Features
from heat_ood.features import _writer as writers
from heat_ood.features._manifest import read_manifest
from heat_ood.features._store import Writer, open_store
from store_data import same, some
from store_rivals import contend, killer


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a kill all reaches the disk without waiting for it."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def own(folder: Path) -> set[str]:
    return {"manifest.json", *read_manifest(folder).files}


@pytest.mark.parametrize("job", ["save", "extract"])
def test_killed_at_any_step_it_leaves_the_old_or_the_new(tmp_path: Path, job: str) -> None:
    """Of 193 kills of a save over a store, 125 left neither."""
    before, step, left = some(7), 0, dict.fromkeys(("old", "new"), 0)
    with killer() as kill:
        kill(tmp_path / "whole", job, -1)
        after = open_store(tmp_path / "whole", verify=True)
        while True:
            step += 1
            path = tmp_path / str(step)
            before.save(path)
            (path / "avg-backup.npy").write_bytes(b"mine")
            if not kill(path, job, step):
                break
            found = open_store(path, verify=True)
            assert same(found, before) or same(found, after), step
            left["old" if same(found, before) else "new"] += 1
            with pytest.warns(Notice, match=r"avg-backup\.npy.* stays"):  # the next one sweeps what is left
                some(5).save(path)
            assert names(path) == own(path) | {"avg-backup.npy"}, step
            assert same(open_store(path, verify=True), some(5))
    assert step > 20
    assert left["old"] > 5
    assert left["new"] > 1
    assert same(open_store(path), after)
    assert names(path) == own(path) | {"avg-backup.npy"}


def test_killed_at_any_step_an_extraction_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    step = 0
    with killer() as kill:
        kill(tmp_path / "whole", "go on", -1)
        whole = {file.name: file.read_bytes() for file in (tmp_path / "whole").iterdir()}
        killed = True
        while killed:
            step += 3
            path, killed = tmp_path / str(step), kill(tmp_path / str(step), "go on", step)
            assert not kill(path, "go on", -1)
            assert {file.name: file.read_bytes() for file in path.iterdir()} == whole, step
    assert step > 20


def test_two_writers_and_a_reader(tmp_path: Path) -> None:
    won, reads = contend(tmp_path / "s", rounds=15)
    assert max(won) > 0
    assert reads > 0
    assert names(tmp_path / "s") == own(tmp_path / "s")


def test_a_second_writer_is_refused_and_a_reader_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "PATIENCE", 0.0)
    with Writer(tmp_path / "s") as writer:
        writer.append(some())
        for overwrite in (True, False):
            with pytest.raises(InputError, match=r"Another process is writing to .*Wait until it is done"):
                Writer(tmp_path / "s", overwrite=overwrite)
        with pytest.raises(InputError, match="Another process"):
            some().save(tmp_path / "s")
        writer.append(some())
        writer.finish()
        with Writer(tmp_path / "s") as other:
            assert other.manifest.count == 12
    with Writer(tmp_path / "s", "another", overwrite=True) as writer:
        writer.append(some())
        assert len(open_store(tmp_path / "s", verify=True)) == 12
        with Writer(tmp_path / "s") as other:  # the one that stands is not locked
            assert other.manifest.finished
        with pytest.raises(InputError, match="Another process"):
            Writer(tmp_path / "s", "another")


def test_a_writer_that_fails_gives_way(tmp_path: Path) -> None:
    some().save(tmp_path / "s")
    for _ in range(2):
        with pytest.raises(InputError, match="another model"):
            Writer(tmp_path / "s", "another")
    (tmp_path / "s" / "notes.txt").write_text("mine")
    for _ in range(2):
        with pytest.raises(InputError, match=r"notes\.txt"):
            some().save(tmp_path / "s")


def test_files_that_are_not_ours_are_neither_removed_nor_written_to(tmp_path: Path) -> None:
    some(7).save(tmp_path / "s")
    (tmp_path / "precious").write_bytes(b"precious")
    (tmp_path / "s" / "avg-1.npy").symlink_to(tmp_path / "precious")
    (tmp_path / "s" / "std-2.npy").write_bytes(b"mine")
    with pytest.warns(Notice, match="stays"):
        some(5).save(tmp_path / "s")
    assert same(open_store(tmp_path / "s", verify=True), some(5))
    assert (tmp_path / "precious").read_bytes() == b"precious"
    assert (tmp_path / "s" / "std-2.npy").read_bytes() == b"mine"
    assert (tmp_path / "s" / "avg-1.npy").is_symlink()


def test_a_reader_that_opened_the_old_one_keeps_it(tmp_path: Path) -> None:
    some(7).save(tmp_path / "s")
    old = open_store(tmp_path / "s")
    for n in (5, 6, 7):
        some(n, seed=n).save(tmp_path / "s")
        assert same(old, some(7))


def test_a_damaged_store_can_be_written_anew(tmp_path: Path) -> None:
    some(7).save(tmp_path / "s")
    (tmp_path / "s" / "manifest.json").write_text("{")
    with pytest.raises(FormatError, match="damaged"):
        Writer(tmp_path / "s")
    with pytest.warns(Notice, match="no manifest names"):
        writer = Writer(tmp_path / "s", overwrite=True)
    with writer:
        writer.append(some(5))
        writer.finish()
    assert same(open_store(tmp_path / "s", verify=True), Features.open(tmp_path / "s"))
    assert len(open_store(tmp_path / "s")) == 5


def test_a_save_that_fails_leaves_nothing_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    some(7).save(tmp_path / "s")
    before = {file.name: file.read_bytes() for file in (tmp_path / "s").iterdir()}

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("heat_ood.features._appending.Appender.finish", fail)
        for path in (tmp_path / "s", tmp_path / "new"):
            with pytest.raises(OSError, match="No space"):
                some(5).save(path)
    assert {file.name: file.read_bytes() for file in (tmp_path / "s").iterdir()} == before
    assert not names(tmp_path / "new")
    some(5).save(tmp_path / "new")
    assert same(open_store(tmp_path / "new"), some(5))


# Extraction over a store


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))


def loader(n: int = 12, seed: int = 1) -> DataLoader[Any]:
    g = torch.Generator().manual_seed(seed)
    return DataLoader(TensorDataset(torch.rand(n, 4, generator=g), torch.arange(n) % 2), batch_size=5)


class StopError(Exception):
    """What interrupts a run."""


def failing(after: int, seed: int = 1) -> Any:
    for number, batch in enumerate(loader(seed=seed)):
        if number == after:
            raise StopError
        yield batch


@pytest.mark.parametrize("after", [0, 1, 2])
def test_an_overwriting_extraction_that_fails_leaves_the_old_features(tmp_path: Path, after: int) -> None:
    first = Extractor(network()).extract(loader(), tmp_path / "s")
    with pytest.raises(StopError):
        Extractor(network(1)).extract(failing(after), tmp_path / "s", overwrite=True)
    assert same(open_store(tmp_path / "s", verify=True), first)
    assert same(Extractor(network()).extract(loader(), tmp_path / "s"), first)  # and can be reused

    # The same model as before the failure goes on, and takes the place of the old features.
    second = Extractor(network(1)).extract(loader(), tmp_path / "s", **({} if after else {"overwrite": True}))
    assert same(second, Extractor(network(1)).extract(loader()))
    assert names(tmp_path / "s") == own(tmp_path / "s")
    with pytest.raises(InputError, match="another model"):
        Extractor(network()).extract(loader(), tmp_path / "s")


def test_going_on_over_a_store_makes_no_second_pass(tmp_path: Path) -> None:
    Extractor(network()).extract(loader(seed=2), tmp_path / "s")
    with pytest.raises(StopError):
        Extractor(network()).extract(failing(2), tmp_path / "s", overwrite=True)
    model, passes = network(), list[int]()
    extractor = Extractor(model)
    model.register_forward_hook(lambda *_: passes.append(1))
    found = extractor.extract(loader(), tmp_path / "s")
    assert len(passes) == 1 + 1, "the first batch is read twice: see test_extractor.py"
    assert same(found, Extractor(network()).extract(loader()))
