"""Moments kept beside shards: to the bit the same whoever sums them and when, and never those of other features."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from heat_ood.errors import FormatError, InputError
from heat_ood.features import Features, Moments, Space, joined, merge_shards, read_manifest
from heat_ood.features._kept import Contents, Known, keep_moments, moments_file
from heat_ood.features._packed import BLOCK, Merging, Packed
from heat_ood.files import digest_of_tensors, write_tensors

RAW, BOTH = Space(("avg",), normalise=False), Space(("avg", "std@one"))


def shards(folder: Path, sizes: tuple[int, ...] = (40, 1, 90), classes: int = 5, far: float = 1e4) -> list[Path]:
    """Features far from zero, in shards that differ in size and in the classes that they have."""
    g = torch.Generator().manual_seed(0)
    found = []
    for i, n in enumerate(sizes):
        z = far + torch.randn(n, 6, generator=g, dtype=torch.float64) * torch.arange(1, 7)
        s = torch.rand(n, 3, generator=g, dtype=torch.float64)
        labels = (torch.arange(n) + i) % (classes if i % 2 == 0 else 2)
        found.append(folder / f"shard-{i:05}")
        Features(avg=z, layers={"one": (z[:, :2], s)}, labels=labels).save(found[-1])
    return found


def merged_moments(parts: list[Path], space: Space, classes: int) -> Moments:
    return Known(tuple((part, Contents.of(read_manifest(part))) for part in parts), classes)(space)


def same(a: Moments, b: Moments) -> bool:
    names = ("counts", "sums", "outer", "origin", "minimum", "maximum")
    return all(torch.equal(getattr(a, name), getattr(b, name)) for name in names)


@pytest.mark.parametrize("space", [RAW, BOTH])
def test_merged_moments_are_those_of_all_samples(tmp_path: Path, space: Space) -> None:
    parts = shards(tmp_path)
    moments = merged_moments(parts, space, 5)
    z = np.concatenate([space(Features.open(p)).numpy() for p in parts])
    y = np.concatenate([Features.open(p).labels.numpy() for p in parts])
    assert moments.counts.tolist() == np.bincount(y, minlength=5).tolist()
    means = np.stack([z[y == c].mean(0) for c in range(5)])
    centred = z - means[y]
    np.testing.assert_allclose(moments.means, means, rtol=1e-13)
    np.testing.assert_allclose(moments.covariance, centred.T @ centred / len(z), rtol=0, atol=1e-9)
    assert torch.equal(moments.outer, moments.outer.T)
    np.testing.assert_array_equal(moments.minimum, z.min(0))
    np.testing.assert_array_equal(moments.maximum, z.max(0))


def test_neither_who_sums_nor_when_nor_with_how_many_threads_changes_a_bit(tmp_path: Path) -> None:
    one, other = shards(tmp_path / "one"), shards(tmp_path / "other")
    for part in reversed(one):
        keep_moments(part, [BOTH, RAW])
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        alone = merged_moments(other, RAW, 5)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert same(merged_moments(one, RAW, 5), alone)
    files = [[moments_file(part, RAW).read_bytes() for part in parts] for parts in (one, other)]
    assert files[0] == files[1]


def test_kept_moments_are_taken_without_reading_features(tmp_path: Path) -> None:
    parts = shards(tmp_path)
    before = merged_moments(parts, RAW, 5)
    for part in parts:
        for file in part.glob("*.npy"):
            file.unlink()
    assert same(merged_moments(parts, RAW, 5), before)


def test_moments_of_features_that_were_replaced_are_summed_anew(tmp_path: Path) -> None:
    parts = shards(tmp_path)
    merged_moments(parts, RAW, 5)
    found = Features.open(parts[0])
    Features(avg=found.avg + 1, layers=found.layers, labels=found.labels).save(parts[0])
    fresh = shards(tmp_path / "fresh")
    Features(avg=found.avg + 1, layers=found.layers, labels=found.labels).save(fresh[0])
    assert same(merged_moments(parts, RAW, 5), merged_moments(fresh, RAW, 5))


def test_damage_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    parts = shards(tmp_path)
    merged_moments(parts, RAW, 5)
    file = moments_file(parts[1], RAW)
    whole = file.read_bytes()
    for data in (whole[:-1] + bytes([whole[-1] ^ 1]), whole[:100], b"", b"{}" * 50):
        file.write_bytes(data)
        with pytest.raises(FormatError, match=r"damaged.*Delete the file"):
            merged_moments(parts, RAW, 5)
    file.unlink()
    assert merged_moments(parts, RAW, 5).n == 131


def test_any_bit_that_changes_in_a_file_of_moments_is_seen(tmp_path: Path) -> None:
    parts = shards(tmp_path, (9,))
    before = merged_moments(parts, RAW, 5)
    file = moments_file(parts[0], RAW)
    whole = file.read_bytes()
    for place in range(0, len(whole), 7):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        with suppress(FormatError):
            assert same(merged_moments(parts, RAW, 5), before)


def test_moments_of_the_first_version_are_summed_anew(tmp_path: Path) -> None:
    parts = shards(tmp_path)
    before = merged_moments(parts, RAW, 5)
    file = moments_file(parts[0], RAW)
    now, tensors = file.read_bytes(), load_file(file)
    about = {"version": "1", "of": Contents.of(read_manifest(parts[0])).identity(RAW)}
    header = json.dumps({**about, "sha256": digest_of_tensors(tensors, about)})
    write_tensors(file, {**tensors, "upper": tensors["upper"] + 1}, {"about": header})
    assert same(merged_moments(parts, RAW, 5), before)
    assert file.read_bytes() == now


def test_an_error_in_a_shard_is_told_though_others_are_read_ahead(tmp_path: Path) -> None:
    parts = shards(tmp_path)
    merged_moments(parts, RAW, 5)
    for part in parts[2:]:
        moments_file(part, RAW).write_bytes(b"")
    with pytest.raises(FormatError, match=re.escape(str(moments_file(parts[2], RAW)))):
        merged_moments(parts, RAW, 5)


def test_features_that_are_no_numbers_are_refused_by_sample(tmp_path: Path) -> None:
    z = torch.ones(9, 2)
    z[4, 1] = torch.nan
    Features(avg=z, labels=torch.zeros(9, dtype=torch.long)).save(tmp_path / "shard-00000")
    with pytest.raises(InputError, match="sample 4"):
        keep_moments(tmp_path / "shard-00000", [RAW])
    assert not moments_file(tmp_path / "shard-00000", RAW).exists()


def test_a_store_of_shards_knows_its_moments_and_its_parts_do_not(tmp_path: Path) -> None:
    parts = shards(tmp_path)
    store = merge_shards(tmp_path)
    known = store.moments_in(RAW)
    assert known is not None
    assert same(known, merged_moments(parts, RAW, 5))
    assert store.only(("avg",)).summed
    assert not any(part.summed for part in (store[:9], store.subset(torch.arange(9)), Features.open(parts[0])))


def test_stores_join_one_behind_the_other_by_their_moments_alone(tmp_path: Path) -> None:
    shards(tmp_path / "all", (40, 1, 90, 7))
    for i, part in enumerate((0, 1, 2, 3)):
        to = tmp_path / ("old" if i < 2 else "new")
        Features.open(tmp_path / "all" / f"shard-{part:05}").save(to / f"shard-{i % 2:05}")
    whole, old, new = (merge_shards(tmp_path / name) for name in ("all", "old", "new"))
    both = joined([old, new])
    known = whole.moments_in(RAW)
    found = both.moments_in(RAW)
    assert known is not None
    assert found is not None
    assert same(found, known)
    rows = torch.tensor([0, 39, 40, 41, 130, 131, 137, 5])
    for one in (whole, both):
        assert torch.equal(one.subset(rows).avg, torch.cat([whole.avg, whole.avg])[rows])
    assert torch.equal(both.labels, whole.labels)
    assert torch.equal(both[35:60].layers["one"].std, whole[35:60].layers["one"].std)
    with pytest.raises(InputError, match="Only whole stores of shards join"):
        joined([old, new[:3]])
    with pytest.raises(InputError, match="different columns"):
        joined([old, Features(avg=torch.zeros(3, 6))])


def test_a_shard_that_was_replaced_since_its_store_was_closed_is_refused(tmp_path: Path) -> None:
    parts = shards(tmp_path)
    store = merge_shards(tmp_path)
    found = Features.open(parts[0])
    Features(avg=found.avg + 1, layers=found.layers, labels=found.labels).save(parts[0])
    with pytest.raises(FormatError, match="Close it anew with heat-ood merge"):
        store.moments_in(RAW)


def test_a_label_beyond_the_classes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="A label is 4, and there are 4 classes"):
        merged_moments(shards(tmp_path), RAW, 4)


def test_many_parts_are_shifted_a_block_at_a_time() -> None:
    g = torch.Generator().manual_seed(0)
    z = 100 + torch.randn(2 * BLOCK + 3, 4, generator=g, dtype=torch.float64)
    y = torch.randint(3, (len(z),), generator=g)
    merging = Merging(3)
    for i in range(len(z)):
        merging.add(Packed.of(Moments.of([(z[i : i + 1], y[i : i + 1])], 3)))
    whole = Moments.of([(z, y)], 3)
    torch.testing.assert_close(merging.result().covariance, whole.covariance, rtol=0, atol=1e-11)
    torch.testing.assert_close(merging.result().means, whole.means, rtol=0, atol=1e-11)


def test_class_sums_stand_apart_from_the_one_outer_product() -> None:
    d, classes = 64, 50
    z, y = torch.rand(500, d), torch.arange(500) % classes
    packed = Packed.of(Moments.of([(z, y)], classes))
    assert packed.bytes == 8 * (2 * classes + classes * d + d * (d + 1) // 2 + 3 * d)
