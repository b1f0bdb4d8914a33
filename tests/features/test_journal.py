"""A batch costs the same whatever came before it, and a journal that is cut anywhere leads to the same features."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from heat_ood.errors import FormatError
from heat_ood.features import Features
from heat_ood.features import _manifest as manifests
from heat_ood.features._manifest import read_manifest
from heat_ood.features._store import Writer, open_store
from store_data import same


def parts(count: int) -> list[Features]:
    """Batches of alternating sizes."""
    g = torch.Generator().manual_seed(0)
    return [Features(avg=torch.rand(3 + i % 2, 2, generator=g), labels=[i % 2] * (3 + i % 2)) for i in range(count)]


def test_batches_of_alternating_sizes_do_not_rewrite_the_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4,000 such batches took 80 seconds, where as many of one size took 7."""
    written: list[int] = []
    write = manifests.write

    def counted(path: Path, content: Any, **options: Any) -> None:
        written.append(len(content))
        write(path, content, **options)

    monkeypatch.setattr(manifests, "write", counted)
    lengths = []
    with Writer(tmp_path) as writer:
        for batch in parts(400):
            writer.append(batch)
            lengths.append((tmp_path / "manifest.journal").stat().st_size)
        before = len(written)
        writer.finish()
    assert before == 2  # when it was begun, and when its columns were known
    assert len(written) == 3
    assert max(b - a for a, b in itertools.pairwise(lengths)) <= 32
    assert len(open_store(tmp_path, verify=True)) == 1400
    assert not (tmp_path / "manifest.journal").exists()


def test_a_journal_that_is_cut_anywhere_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    batches = parts(6)
    with Writer(tmp_path / "part") as writer:
        for batch in batches[:4]:
            writer.append(batch)
    for folder, some in ((tmp_path / "whole", batches), (tmp_path / "part", [])):
        with Writer(folder) as writer:
            for batch in some:
                writer.append(batch)
            if some:
                writer.finish()
    whole = {file.name: file.read_bytes() for file in (tmp_path / "whole").iterdir()}
    journal = (tmp_path / "part" / "manifest.journal").read_bytes()
    starts = [0, 3, 7, 10, 14]
    for end in range(len(journal) + 1):
        folder = shutil.copytree(tmp_path / "part", tmp_path / str(end))
        (folder / "manifest.journal").write_bytes(journal[:end])
        with Writer(folder) as writer:
            done = starts.index(writer.manifest.count)
            assert done == max(journal[:end].count(b"\n") - 1, 0)
            for batch in batches[done:]:
                writer.append(batch)
            writer.finish()
        assert {file.name: file.read_bytes() for file in folder.iterdir()} == whole, end


@pytest.mark.parametrize("text", [b"x" * 100, b"\n", b"0" * 64 + b"\n3 00000000\n", b"\0" * 200])
def test_another_journal_is_refused(tmp_path: Path, text: bytes) -> None:
    with Writer(tmp_path) as writer:
        writer.append(parts(1)[0])
    (tmp_path / "manifest.journal").write_bytes(text)
    with pytest.raises(FormatError, match="belongs to another manifest"):
        Writer(tmp_path)


def test_a_journal_does_not_survive_the_manifest_that_it_goes_with(tmp_path: Path) -> None:
    with Writer(tmp_path, "one") as writer:
        writer.append(parts(1)[0])
    with Writer(tmp_path, "two", overwrite=True) as writer:
        assert not writer.manifest.count
        assert not read_manifest(tmp_path).count
        writer.append(parts(2)[1])
        assert read_manifest(tmp_path).count == 4
        writer.finish()
    assert same(open_store(tmp_path, verify=True), open_store(tmp_path))
    assert open_store(tmp_path).fingerprint == "two"


def test_a_batch_that_fails_half_way_can_be_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = parts(3)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with Writer(tmp_path / "a") as writer:
        writer.append(batches[0])
        with monkeypatch.context() as patch:
            patch.setattr("heat_ood.features._journal.Journal.add", full)
            with pytest.raises(OSError, match="No space"):
                writer.append(batches[1])
        for batch in batches[1:]:
            writer.append(batch)
        writer.finish()
    assert same(open_store(tmp_path / "a", verify=True), Features.concatenate(batches))
