"""Stored features come back as they were, and nothing that is damaged, unfinished or foreign is taken for them."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from heat_ood.errors import FormatError, InputError
from heat_ood.features import Features
from heat_ood.features._store import Writer, open_store, save
from store_data import edit, make_earlier, same, some


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("n", [1, 6])
def test_round_trip(tmp_path: Path, n: int, dtype: torch.dtype) -> None:
    features = some(n, dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        save(features, tmp_path / "s")
        opened = open_store(tmp_path / "s")
    assert same(opened, features)
    assert list(opened.layers) == ["a.b/../c", "A"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["s"]


def test_round_trip_of_the_least(tmp_path: Path) -> None:
    features = Features(layers={"x": torch.rand(3, 2)})
    features.save(tmp_path)
    assert same(Features.open(tmp_path), features)


def test_bfloat16_is_stored_as_float32(tmp_path: Path) -> None:
    features = some(dtype=torch.bfloat16)
    features.save(tmp_path)
    assert torch.equal(Features.open(tmp_path).avg, features.avg.float())


def test_opened_features_are_mapped_and_changes_stay_in_memory(tmp_path: Path) -> None:
    some().save(tmp_path)
    opened = Features.open(tmp_path)
    before = opened.avg.clone()
    opened.avg.zero_()
    assert torch.equal(Features.open(tmp_path).avg, before)


def test_files_are_plain_npy(tmp_path: Path) -> None:
    features = some()
    features.save(tmp_path)
    for column in json.loads((tmp_path / "manifest.json").read_text())["columns"]:
        array = np.load(tmp_path / column["file"], allow_pickle=False)
        assert len(array) == len(features)


def test_a_store_can_be_saved_over_itself(tmp_path: Path) -> None:
    features = some()
    features.save(tmp_path / "s")
    Features.open(tmp_path / "s")[::2].save(tmp_path / "s")
    assert same(Features.open(tmp_path / "s"), features[::2])


def test_chunks_do_not_show(tmp_path: Path) -> None:
    features = some()
    save(features, tmp_path / "a", rows=1)
    save(features, tmp_path / "b", rows=4)
    for file in (tmp_path / "a").glob("*.npy"):
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()


def test_save_and_overwrite_keep_what_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(InputError, match="holds no features"):
        some().save(tmp_path)
    with pytest.raises(InputError, match="holds no features"):
        Writer(tmp_path, overwrite=True)
    some().save(tmp_path / "s")
    (tmp_path / "s" / "notes.txt").write_text("precious")
    with pytest.raises(InputError, match=r"notes\.txt"):
        Writer(tmp_path / "s", overwrite=True)
    assert len(open_store(tmp_path / "s")) == 6
    assert (tmp_path / "s" / "notes.txt").exists()
    assert (tmp_path / "thesis.txt").exists()


def test_unfinished_is_never_taken_for_finished(tmp_path: Path) -> None:
    with Writer(tmp_path) as writer:
        with pytest.raises(FormatError, match="not finished"):
            open_store(tmp_path)
        writer.append(some())
        with pytest.raises(FormatError, match=r"6 samples so far.*Run extract again"):
            open_store(tmp_path)
        writer.finish()
    assert len(open_store(tmp_path)) == 6


@pytest.mark.parametrize("left", ["manifest.json.part", "manifest.json.tmp"])  # the second is of version 0.1
@pytest.mark.parametrize("tail", [b"", b"x", b"y" * 1000])
def test_writer_cuts_off_what_the_manifest_does_not_know(tmp_path: Path, tail: bytes, left: str) -> None:
    features = some(6)
    with Writer(tmp_path / "a") as writer:
        writer.append(features[:4])
    for file in (tmp_path / "a").glob("[a-z]*.npy"):
        if not file.name.startswith("head"):
            file.write_bytes(file.read_bytes() + tail)
    (tmp_path / "a" / left).write_text("{half a mani")
    with Writer(tmp_path / "a") as writer:
        assert writer.manifest.count == 4
        assert writer.labels().tolist() == [0, 1, 0, 1]
        writer.append(features[4:])
        writer.finish()
    with Writer(tmp_path / "b") as writer:
        writer.append(features[:4])
        writer.append(features[4:])
        writer.finish()
    files = sorted(p.name for p in (tmp_path / "b").iterdir())
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == files
    assert all((tmp_path / "a" / f).read_bytes() == (tmp_path / "b" / f).read_bytes() for f in files)


@pytest.mark.parametrize("left", ["manifest.json.part", "manifest.json.tmp"])
def test_what_a_kill_left_of_a_manifest_is_not_in_the_way(tmp_path: Path, left: str) -> None:
    features = some()
    features.save(tmp_path / "s")
    (tmp_path / "s" / left).write_text("{half a mani")
    assert same(open_store(tmp_path / "s"), features)
    features.save(tmp_path / "s")
    (tmp_path / "s" / left).write_text("{half a mani")
    with Writer(tmp_path / "s", overwrite=True) as writer:
        assert not writer.manifest.count
        assert not (tmp_path / "s" / left).exists()
    assert same(open_store(tmp_path / "s"), features)


def test_writer_refuses_another_model_and_other_columns(tmp_path: Path) -> None:
    with Writer(tmp_path, "one") as writer:
        writer.append(some())
        with pytest.raises(InputError, match="columns"):
            writer.append(Features(avg=torch.rand(2, 4)))
        with pytest.raises(InputError, match="columns"):
            writer.append(some(dtype=torch.float64))
    with pytest.raises(InputError, match="another model"):
        Writer(tmp_path, "two")
    with Writer(tmp_path, "two", overwrite=True) as writer:
        assert writer.manifest.count == 0


def test_writer_notices_lost_data(tmp_path: Path) -> None:
    with Writer(tmp_path) as writer:
        writer.append(some())
    (tmp_path / "std.npy").write_bytes((tmp_path / "std.npy").read_bytes()[:-1])
    with Writer(tmp_path) as writer, pytest.raises(FormatError, match="shorter"):
        writer.append(some())


def edit_column(folder: Path, **changes: Any) -> None:
    columns = json.loads((folder / "manifest.json").read_text())["columns"]
    edit(folder, columns=[columns[0] | changes, *columns[1:]])


DAMAGES = {
    "no manifest": lambda f: (f / "manifest.json").unlink(),
    "empty manifest": lambda f: (f / "manifest.json").write_text(""),
    "not text": lambda f: (f / "manifest.json").write_bytes(b"\xff\xfe\x00"),
    "deep": lambda f: (f / "manifest.json").write_text("[" * 100_000),
    "foreign": lambda f: (f / "manifest.json").write_text('{"name": "web app", "version": 1}'),
    "a list": lambda f: (f / "manifest.json").write_text("[]"),
    "newer": lambda f: edit(f, version=3),
    "older": lambda f: edit(f, version=0),
    "count": lambda f: edit(f, count=5),
    "count and batches": lambda f: edit(f, count=5, batches=[[5, 1]]),
    "huge count": lambda f: edit(f, count=2**52, batches=[[2**52, 1]]),
    "negative count": lambda f: edit(f, count=-1),
    "count is text": lambda f: edit(f, count="6"),
    "no columns": lambda f: edit(f, columns=[]),
    "columns of numbers": lambda f: edit(f, columns=[1, 2]),
    "batches": lambda f: edit(f, batches=[[6]]),
    "classes": lambda f: edit(f, classes=7),
    "half a head": lambda f: edit(f, head=json.loads((f / "manifest.json").read_text())["head"][:1]),
    "absolute": lambda f: edit_column(f, file="/etc/passwd"),
    "parent": lambda f: edit_column(f, file="../avg.npy"),
    "same file twice": lambda f: edit_column(f, file="std.npy"),
    "dtype": lambda f: edit_column(f, dtype="<f8"),
    "object dtype": lambda f: edit_column(f, dtype="|O"),
    "width": lambda f: edit_column(f, width=2),
    "unknown column": lambda f: edit_column(f, pooling="max"),
    "missing file": lambda f: (f / "avg.npy").unlink(),
    "truncated": lambda f: (f / "avg.npy").write_bytes((f / "avg.npy").read_bytes()[:-1]),
    "header only": lambda f: (f / "avg.npy").write_bytes((f / "avg.npy").read_bytes()[:60]),
    "empty file": lambda f: (f / "avg.npy").write_bytes(b""),
    "longer": lambda f: (f / "avg.npy").write_bytes((f / "avg.npy").read_bytes() + b"\0"),
    "other bytes": lambda f: (f / "avg.npy").write_bytes(b"PK\3\4" + bytes(300)),
    "other dtype": lambda f: np.save(f / "avg.npy", np.zeros((6, 4))),
    "other shape": lambda f: np.save(f / "avg.npy", np.zeros((5, 4), np.float32)),
    "pickle": lambda f: np.save(f / "avg.npy", np.array([{}] * 6, dtype=object), allow_pickle=True),
    "columns first": lambda f: np.save(f / "avg.npy", np.asfortranarray(np.zeros((6, 4), np.float32))),
    "a folder": lambda f: ((f / "avg.npy").unlink(), (f / "avg.npy").mkdir()),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_an_error_with_a_remedy(tmp_path: Path, damage: str) -> None:
    some().save(tmp_path / "s")
    DAMAGES[damage](tmp_path / "s")
    with pytest.raises(FormatError) as caught:
        open_store(tmp_path / "s")
    assert any(word in str(caught.value) for word in ("again", "Pass a folder", "Upgrade", "Pass "))


def test_links_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    some().save(tmp_path / "s")
    some(seed=1).save(tmp_path / "other")
    (tmp_path / "s" / "avg.npy").unlink()
    (tmp_path / "s" / "avg.npy").symlink_to(tmp_path / "other" / "avg.npy")
    with pytest.raises(FormatError, match="leads out"):
        open_store(tmp_path / "s")


@pytest.mark.parametrize("earlier", [True, False])
def test_random_damage_to_the_manifest_never_crashes(tmp_path: Path, earlier: bool) -> None:
    features = some()
    features.save(tmp_path)
    if earlier:
        make_earlier(tmp_path)
    text, rng = (tmp_path / "manifest.json").read_bytes(), np.random.default_rng(0)
    for _ in range(300):
        changed = bytearray(text)
        for position in rng.integers(0, len(text), rng.integers(1, 4)):
            changed[position] = rng.integers(32, 127)
        (tmp_path / "manifest.json").write_bytes(bytes(changed[: rng.integers(len(text) // 2, len(text) + 1)]))
        try:
            opened = open_store(tmp_path)
        except FormatError:
            continue
        assert len(opened) == len(features)
