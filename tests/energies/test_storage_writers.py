"""Several writers and readers of one folder: all find the old or the new, and nobody's files are lost."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import torch

from heat_ood import Energy, Features, FormatError, InputError
from heat_ood.energies import GaussianMixture, MaximumSoftmax, ours, remove
from heat_ood.energies import _storage as storage
from storage_data import data, fitted, outcome, tensors_of
from writers import KINDS, beside_writers


@pytest.mark.parametrize("kind", KINDS)
def test_two_writers_and_a_reader(kind: str, tmp_path: Path) -> None:
    rounds = 200 if kind == "detector" else 60
    found = beside_writers(kind, rounds, tmp_path)
    assert sum(found.values()) == rounds
    names = {file.name for file in (tmp_path / "it").iterdir()}
    if kind == "detector":
        assert len(names) == 2, "the JSON file and the tensors that it names"
    else:
        assert len(names) == 3, "the detector, the record and the weights that it names"
        assert {"detector", "guard.json"} < names


def another() -> Energy:
    return fitted(GaussianMixture(("std",)))


def test_a_reader_that_comes_too_late_for_the_tensors_looks_again(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer is quicker each time but the last, when the reader makes it wait."""
    energies, read_tensors, calls = [another(), fitted(MaximumSoftmax())], storage.read_tensors, list[int]()

    def late(folder: Path, manifest: dict[str, object]) -> object:
        calls.append(1)
        if len(calls) <= storage.TRIES:
            energies[len(calls) % 2].save(folder)
        return read_tensors(folder, manifest)

    monkeypatch.setattr(storage, "read_tensors", late)
    found = Energy.load(copy)
    assert len(calls) == storage.TRIES + 1
    assert outcome(found) == outcome(energies[storage.TRIES % 2])


def test_tensors_that_are_missing_are_said_to_be(copy: Path) -> None:
    tensors_of(copy)[0].unlink()
    with pytest.raises(FormatError, match=r"tensors-.* is missing\. Copy the whole folder"):
        Energy.load(copy)


def test_only_what_is_surely_its_own_is_swept(copy: Path, tmp_path: Path) -> None:
    old, _ = tensors_of(copy)
    theirs = tmp_path / "theirs"
    theirs.write_text("years of work")
    linked = "tensors-00000000000000aa.safetensors"
    kept = {
        f"{old.name}.bak": "a backup",
        "tensors-backup.safetensors": "a backup",
        "tensors-0123456789abcdef.safetensors": "named as ours, of another content",
        ".tensors-x.safetensors.0123456789ab.part": "no part of ours",
        "notes.part": "not ours",
    }
    for name, content in kept.items():
        (copy / name).write_text(content)
    (copy / linked).symlink_to(theirs)
    orphan = b"of a save that was killed before its JSON file"
    gone = {f"tensors-{hashlib.sha256(orphan).hexdigest()[:16]}.safetensors": orphan}
    gone |= {".tensors-0123456789abcdef.safetensors.0123456789ab.part": b"", f"{old.name}.part": b""}
    gone |= {".detector.json.0123456789ab.part": b""}
    for name, content in gone.items():
        (copy / name).write_bytes(content)

    energy = another()
    energy.save(copy)
    names = {file.name for file in copy.iterdir()}
    assert names == {*kept, linked, "detector.json", tensors_of(copy)[0].name}
    assert {name: (copy / name).read_text() for name in kept} == kept
    assert theirs.read_text() == "years of work"
    assert outcome(Energy.load(copy)) == outcome(energy)


def test_a_link_in_place_of_the_file_is_replaced_not_followed(copy: Path, tmp_path: Path) -> None:
    energy, theirs = another(), tmp_path / "theirs"
    theirs.write_text("years of work")
    energy.save(tmp_path / "elsewhere")
    name = tensors_of(tmp_path / "elsewhere")[0].name
    (copy / name).symlink_to(theirs)
    energy.save(copy)
    assert theirs.read_text() == "years of work"
    assert not (copy / name).is_symlink()
    assert outcome(Energy.load(copy)) == outcome(energy)


def test_a_folder_whose_detector_is_a_link_is_not_ours(copy: Path, tmp_path: Path) -> None:
    moved = shutil.move(copy / "detector.json", tmp_path / "moved.json")
    (copy / "detector.json").symlink_to(moved)
    assert not ours(copy)
    with pytest.raises(InputError, match="holds no detector"):
        another().save(copy)


def test_what_is_removed_is_the_detector_alone(copy: Path, tmp_path: Path) -> None:
    shutil.copytree(copy, tmp_path / "alone")
    (copy / "notes.txt").write_text("mine")
    for folder in (copy, tmp_path / "alone"):
        remove(folder)
    assert [file.name for file in copy.iterdir()] == ["notes.txt"]
    assert not (tmp_path / "alone").exists()
    remove(tmp_path / "alone")
    remove(copy)
    assert (copy / "notes.txt").exists(), "a folder of something else is left alone"


def test_an_index_of_all_that_is_stored_is_checked_when_it_is_read(copy: Path) -> None:
    """A pipe under the name of the tensors is not waited for."""
    import os

    file, _ = tensors_of(copy)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(FormatError, match="not a regular file"):
        Energy.load(copy)
    (copy / "detector.json").unlink()
    os.mkfifo(copy / "detector.json")
    with pytest.raises(FormatError, match="not a regular file"):
        Energy.load(copy)
    with pytest.raises(InputError, match="holds no detector"):
        another().save(copy)


def test_two_detectors_of_the_same_tensors_can_follow_each_other(tmp_path: Path) -> None:
    """The file that is named by its content is then both the old one and the new one."""
    energy = fitted(GaussianMixture())
    for name in ("one", "two"):
        energy.fingerprint = name
        energy.save(tmp_path / "it")
        assert Energy.load(tmp_path / "it").fingerprint == name
    features = Features(avg=data().avg, fingerprint="two")
    assert torch.isfinite(Energy.load(tmp_path / "it").score(features)).all()
    assert json.loads((tmp_path / "it" / "detector.json").read_text())["tensors"]["file"] in {
        file.name for file in (tmp_path / "it").iterdir()
    }
