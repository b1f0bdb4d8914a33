"""Shards open as one store: the same numbers by every way of reading them, and the same scores to the bit."""

from __future__ import annotations

import json
import os
import pickle
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heat_ood.errors import FormatError, InputError
from heat_ood.features import Features, Seen, Shard, _pieces, digest_of_samples, merge_shards
from heat_ood.features import _sharded as sharded_module
from heat_ood.features._pieces import files_of
from heat_ood.features._store import Writer
from method_data import BEYOND, CASES, Case, samples
from shard_data import cut, sharded
from store_data import edit, make_earlier, same, some

SIZES = (5, 1, 7, 0, 4)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Features, Features]:
    """The same samples in memory and in shards, one of them empty."""
    features = some(sum(SIZES))
    return features, sharded(features, tmp_path_factory.mktemp("shards"), SIZES)


# Read as one


def test_shards_are_one_store(pair: tuple[Features, Features]) -> None:
    one, shards = pair
    assert same(shards, one)
    assert repr(shards) == repr(one)
    assert (len(shards), shards.classes, shards.available) == (len(one), one.classes, one.available)
    assert digest_of_samples(shards) == digest_of_samples(one)
    assert torch.equal(shards.logits, one.logits)
    assert list(shards.layers) == list(one.layers)


index = st.integers(-20, 20) | st.none()


@settings(max_examples=60, deadline=None)
@given(start=index, stop=index, step=st.integers(-3, 3).filter(lambda s: s > 0), again=index)
def test_slices_and_slices_of_slices(
    pair: tuple[Features, Features], start: int | None, stop: int | None, step: int, again: int | None
) -> None:
    one, shards = (features[start:stop:step] for features in pair)
    assert same(shards, one)
    assert same(shards[again:], one[again:])
    rows = torch.arange(len(one)).flip(0)
    assert same(shards[rows], one[rows])


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.integers(-17, 16), max_size=40), size=st.integers(1, 20))
def test_rows_by_their_numbers_in_any_order(pair: tuple[Features, Features], rows: list[int], size: int) -> None:
    one, shards = pair
    chosen = np.array(rows, dtype=np.int64)
    assert same(shards[chosen], one[chosen])
    views = [features.subset(torch.as_tensor(chosen) % 17) for features in pair]
    assert all(same(a, b) for a, b in zip(*(view.batches(size) for view in views), strict=True))
    assert all(same(a, b) for a, b in zip(shards.batches(size), one.batches(size), strict=True))


def test_the_rest_of_the_ways(pair: tuple[Features, Features]) -> None:
    one, shards = pair
    mask = one.labels == 1
    assert same(shards[mask], one[mask])
    assert same(shards[-1], one[-1])
    assert same(shards[mask].among(torch.tensor([1])), one[mask].among(torch.tensor([1])))
    assert same(shards.only(["std@a.b/../c"])[4:9], one.only(["std@a.b/../c"])[4:9])
    assert same(shards.to(torch.float64), one.to(torch.float64))
    assert same(Features.concatenate([shards, shards[2:6]]), Features.concatenate([one, one[2:6]]))
    for wrong in ([17], [-18]):
        with pytest.raises(IndexError):
            shards[wrong]
    logits = Features(logits=torch.rand(6, 3), labels=[0, 2, 0, 2, 0, 2])
    kept = torch.tensor([0, 2])
    assert shards is not None
    assert torch.equal(logits.among(kept).logits, logits.logits[:, kept])


def test_logits_of_some_classes_are_a_view(tmp_path: Path) -> None:
    one = Features(logits=torch.rand(9, 4), labels=[1, 3, 1] * 3)
    shards = sharded(one, tmp_path, (4, 5))
    kept = torch.tensor([1, 3])
    assert same(shards.among(kept)[2:7], one.among(kept)[2:7])
    assert same(shards.among(kept)[[8, 0]], one.among(kept)[[8, 0]])


def test_labels_of_every_second_sample(tmp_path: Path) -> None:
    """Before anything else was read: slices with a step once asked themselves for their labels without end."""
    one = some(9)
    assert torch.equal(sharded(one, tmp_path, (4, 5))[::2].labels, one.labels[::2])


def test_many_rows_are_gathered_in_parts(pair: tuple[Features, Features], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heat_ood.features._pieces.GATHERED", 40)
    one, shards = pair
    rows = torch.randint(17, (50,), generator=torch.Generator().manual_seed(0))
    assert same(shards[rows], one[rows])


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_types_stay(tmp_path: Path, dtype: torch.dtype) -> None:
    one = some(6, dtype)
    assert same(sharded(one, tmp_path, (2, 4)), one)


def test_another_process_opens_it_by_itself(pair: tuple[Features, Features]) -> None:
    one, shards = pair
    assert same(pickle.loads(pickle.dumps(shards[3:12])), one[3:12])


def test_a_store_of_shards_can_be_saved_as_one(pair: tuple[Features, Features], tmp_path: Path) -> None:
    pair[1].save(tmp_path)
    assert same(Features.open(tmp_path), pair[0])


# The same scores


SETS = {"train": (240, (100, 3, 137)), "held": (60, (31, 29)), "test": (50, (7, 43))}


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Features]]:
    """Samples to fit, to calibrate and to score, in memory and in shards."""
    one = {name: samples(n, seed) for seed, (name, (n, _)) in enumerate(SETS.items())}
    folder = tmp_path_factory.mktemp("sets")
    return [one, {name: sharded(one[name], folder / name, sizes) for name, (_, sizes) in SETS.items()}]


@pytest.mark.parametrize("name", [name for name in CASES if name not in BEYOND])
def test_every_method_scores_to_the_bit(sets: list[dict[str, Features]], name: str) -> None:
    found = []
    for data in sets:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The residual of")
            energy = Case(name).create().fit(data["train"]).calibrate(data["held"])
        found.append([energy.score(data["test"]), energy.p_value(data["test"])])
    assert all(map(torch.equal, *found))


# Laziness


def test_a_shard_is_opened_when_it_is_touched(tmp_path: Path) -> None:
    one = some(12)
    cut(one, tmp_path, (4, 4, 4))
    merge_shards(tmp_path)
    (tmp_path / "shard-00001" / "std.npy").unlink()
    shards = Features.open(tmp_path)
    assert same(shards[8:], one[8:])
    assert torch.equal(shards.only(["avg"])[4:9].avg, one.avg[4:9])
    with pytest.raises(FormatError, match=r"shard-00001.std\.npy is missing.*heat-ood merge"):
        _ = shards[3:5].std


def test_maps_are_bounded_and_hold_no_file_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = some(40)
    cut(one, tmp_path, (2,) * 20)
    monkeypatch.setattr(sharded_module, "STORED", WeakSet())
    shards = merge_shards(tmp_path)
    before = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0
    monkeypatch.setattr(sharded_module, "MAPS", 7)
    rows = torch.randperm(40, generator=torch.Generator().manual_seed(0))
    for _ in range(2):
        assert same(shards[rows], one[rows])
        assert sum(len(column.held) for column in sharded_module.STORED) == 7
    if sys.platform == "linux":
        assert len(os.listdir("/proc/self/fd")) == before


# What cannot be opened


@settings(max_examples=100, deadline=None)
@given(sizes=st.lists(st.integers(0, 9), min_size=1, max_size=12), seed=st.integers(0, 99))
def test_the_file_of_a_row_is_found_whatever_the_sizes(sizes: list[int], seed: int) -> None:
    starts = np.cumsum([0, *sizes, 1])
    rows = np.random.default_rng(seed).integers(0, starts[-1], 20)
    before = rows.copy()
    assert (files_of(starts, rows) == np.searchsorted(starts, rows, "right") - 1).all()
    assert (rows == before).all()


def test_rows_are_right_while_other_threads_let_maps_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    features = some(60)
    store = sharded(features, tmp_path, (10,) * 6)
    monkeypatch.setattr(sharded_module, "MAPS", 8)

    def read(seed: int) -> bool:
        rng = np.random.default_rng(seed)
        rows = [torch.from_numpy(rng.integers(0, 60, int(rng.integers(1, 5)))) for _ in range(150)]
        return all(torch.equal(store[index].avg, features[index].avg) for index in rows)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(read, range(4)))


def test_rows_of_files_that_are_held_are_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    features = some(30)
    store = sharded(features, tmp_path, (10,) * 3)
    index = torch.tensor([29, 0, 11, 11])
    assert torch.equal(store[index].avg, features[index].avg)
    monkeypatch.setattr(_pieces, "slices", None)  # which read one row after the other
    assert torch.equal(store[index].avg, features[index].avg)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    cut(some(12), tmp_path, (4, 4, 4))
    (tmp_path / "shard-00001").rename(tmp_path / "elsewhere")
    for door in (merge_shards, Features.open):
        with pytest.raises((InputError, FormatError), match=r"shard-00001 is missing"):
            door(tmp_path)
    (tmp_path / "elsewhere").rename(tmp_path / "shard-00001")
    merge_shards(tmp_path)
    (tmp_path / "shard-00002").rename(tmp_path / "elsewhere")
    with pytest.raises(FormatError, match=r"lacks shard-00002 of 3 shards"):
        Features.open(tmp_path)


def test_an_unfinished_shard_is_named(tmp_path: Path) -> None:
    one = some(12)
    cut(one, tmp_path, (4, 4, 4))
    with Writer(tmp_path / "shard-00003", one.fingerprint) as writer:
        writer.append(one[:2])
    (tmp_path / "shard-00004").mkdir()
    for door in (merge_shards, Features.open):
        with pytest.raises((InputError, FormatError), match=r"shard-00003, shard-00004 are not finished \(2 samples"):
            door(tmp_path)


def test_shards_that_are_not_closed_say_so(tmp_path: Path) -> None:
    cut(some(6), tmp_path, (3, 3))
    with pytest.raises(FormatError, match=r"2 shards, all finished, but it is not closed\. Close it with .* merge"):
        Features.open(tmp_path)


def test_a_shard_made_anew_must_be_merged_anew(tmp_path: Path) -> None:
    one, other = some(6), some(6, seed=1)
    other = Features(other.avg, other.std, None, other.labels, one.head, other.layers, one.fingerprint)
    shards = sharded(one, tmp_path, (3, 3))
    first = (tmp_path / "manifest.json").read_bytes()
    assert same(merge_shards(tmp_path), shards)
    assert (tmp_path / "manifest.json").read_bytes() == first
    other[3:].save(tmp_path / "shard-00001")
    opened = Features.open(tmp_path)
    assert same(opened[:3], one[:3])
    with pytest.raises(FormatError, match=r"shard-00001.*heat-ood merge"):
        _ = opened[3:].avg
    assert same(merge_shards(tmp_path)[3:], other[3:])


def other_head(f: Features) -> Features:
    return Features(f.avg, f.std, None, f.labels, (f.head.weight + 1, f.head.bias), f.layers, f.fingerprint)


def seen_as(f: Features, **known: Any) -> Features:
    f = f[:]
    f.seen = replace(f.seen or Seen(), **known)
    return f


MIXES: dict[str, tuple[Callable[[Features], Features], str]] = {
    "model": (lambda f: Features(f.avg, f.std, None, f.labels, f.head, f.layers, "e" * 64), "two different models"),
    "unknown": (lambda f: Features(f.avg, f.std, None, f.labels, f.head, f.layers), "which model made it"),
    "layers": (lambda f: Features(f.avg, f.std, None, f.labels, f.head, None, f.fingerprint), "same layers"),
    "labels": (lambda f: Features(f.avg, f.std, None, None, f.head, f.layers, f.fingerprint), "same layers"),
    "dtype": (
        lambda f: Features(f.avg, f.std, None, f.labels, f.head, f.layers, f.fingerprint).to(torch.float16),
        "dt",
    ),
    "head": (other_head, "different heads"),
    "size": (lambda f: seen_as(f, preprocessing={"size": [64, 64]}), r"size \[64, 64\] instead of \[32, 32\]"),
    "classes": (lambda f: seen_as(f, classes=("dog", "cat")), "different class names"),
}


@pytest.mark.parametrize("kind", MIXES)
def test_shards_that_do_not_go_together_are_refused(tmp_path: Path, kind: str) -> None:
    one = seen_as(some(12), preprocessing={"size": [32, 32]}, classes=("cat", "dog"))
    cut(one, tmp_path, (4, 4, 4))
    assert merge_shards(tmp_path).seen.classes == ("cat", "dog")
    change, words = MIXES[kind]
    change(one)[4:8].save(tmp_path / "shard-00001")
    with pytest.raises(InputError, match=rf"shard-00000 and shard-00001 .* do not go together.*{words}"):
        merge_shards(tmp_path)


def test_other_folders_are_no_stores_of_shards(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="There are no shards"):
        merge_shards(tmp_path)
    some().save(tmp_path / "one")
    with pytest.raises(InputError, match="not in shards"):
        merge_shards(tmp_path / "one")
    cut(some(6), tmp_path / "many", (3, 3))
    make_earlier(tmp_path / "many" / "shard-00001")
    with pytest.raises(InputError, match="shard-00001 has no checksums"):
        merge_shards(tmp_path / "many")


# Damage


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    sharded(some(12), tmp_path, (4, 4, 4))
    return tmp_path


def test_damage_within_a_shard_is_found_by_verify(closed: Path) -> None:
    file = closed / "shard-00002" / "avg.npy"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(FormatError, match="shard-00002"):
        Features.open(closed, verify=True)
    with pytest.raises(FormatError, match="shard-00002"):
        _ = Features.open(closed)[9].avg


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c["shards"].pop(),
        lambda c: c["shards"][1].pop(),
        lambda c: c["shards"][1][1].__setitem__(0, "../shard-00000/avg.npy"),
        lambda c: c["shards"][1].__setitem__(0, -4),
        lambda c: c["shards"][1].__setitem__(0, True),
        lambda c: c["shards"].clear(),
        lambda c: c["columns"].append(c["columns"][0]),
        lambda c: c["columns"].clear(),
        lambda c: c["head"].pop(),
        lambda c: c["head_checksums"].pop(),
        lambda c: c.__setitem__("largest", "1"),
        lambda c: c.__setitem__("largest", 10**9),
        lambda c: c.__setitem__("classes", 3),
        lambda c: c.__setitem__("count", 13),
        lambda c: c.pop("origin"),
        lambda c: c["shards"].__setitem__(1, 4),
    ],
)
def test_a_forged_manifest_is_refused(closed: Path, change: Callable[[Any], Any]) -> None:
    content = json.loads((closed / "manifest.json").read_text())
    change(content)
    edit(closed, **content) if set(content) >= {"origin"} else forge(closed, content)
    with pytest.raises(FormatError):
        Features.open(closed)


def forge(folder: Path, content: dict[str, Any]) -> None:
    (folder / "manifest.json").write_text("{}")
    edit(folder, **content)


def test_labels_above_those_of_the_manifest_are_refused(closed: Path) -> None:
    edit(closed, largest=0)
    with pytest.raises(FormatError, match="labels above 0"):
        _ = Features.open(closed).labels


def test_a_changed_manifest_is_damaged(closed: Path) -> None:
    text = (closed / "manifest.json").read_text()
    (closed / "manifest.json").write_text(text.replace('"origin": ""', '"origin": "x"'))
    with pytest.raises(FormatError, match="damaged"):
        Features.open(closed)


# Which part


@settings(max_examples=200, deadline=None)
@given(of=st.integers(1, 40), more=st.integers(0, 100_000))
def test_blocks_are_all_samples_in_order_and_even(of: int, more: int) -> None:
    total = of + more
    blocks = [Shard(i, of).block(total) for i in range(of)]
    assert [row for block in blocks for row in (block.start, block.stop)] == sorted(
        [0, total, *(block.start for block in blocks[1:]), *(block.start for block in blocks[1:])]
    )
    sizes = [len(block) for block in blocks]
    assert min(sizes) >= 1
    assert max(sizes) <= 1 + 1.13 * total / of


def test_blocks_of_large_sets_begin_at_batches() -> None:
    assert {Shard(i, 64).block(10_000_000).start % 1024 for i in range(64)} == {0}


@pytest.mark.parametrize("text", ["64/64", "3", "a/b", "-1/4", "0/0", "3/64/2", ""])
def test_what_is_no_shard(text: str) -> None:
    with pytest.raises(InputError, match="0"):
        Shard.of_text(text)


def test_more_shards_than_samples() -> None:
    with pytest.raises(InputError, match="Take at most 3 shards"):
        Shard(0, 4).block(3)
