"""The container: what it holds, how it is cut, joined and checked."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from heat_ood.errors import InputError
from heat_ood.features import Features


def some(n: int = 7, dtype: torch.dtype = torch.float64, **more: object) -> Features:
    g = torch.Generator().manual_seed(n)

    def rand(width: int) -> torch.Tensor:
        return torch.rand(n, width, dtype=torch.float64, generator=g).to(dtype)

    settings = {
        "avg": rand(4),
        "std": rand(3),
        "labels": torch.arange(n) % 2,
        "head": (torch.ones(2, 4, dtype=torch.float64), torch.arange(2.0)),
        "layers": {"a.b/c": (rand(5), rand(5)), "plain": rand(2)},
        "fingerprint": "f",
    }
    return Features(**(settings | more))


def same(a: Features, b: Features) -> bool:
    labels = (a.labels is None and b.labels is None) or torch.equal(a.labels, b.labels)
    return (
        list(a.columns) == list(b.columns)
        and labels
        and all(torch.equal(a.columns[k], b.columns[k]) for k in a.columns)
    )


def test_arrays_are_not_copied() -> None:
    avg, std = np.random.default_rng(0).random((3, 2)), torch.rand(3, 2)
    features = Features(avg=avg, std=std)
    assert features.std.data_ptr() == std.data_ptr()
    assert features.avg.data_ptr() == avg.ctypes.data
    assert features[1:].std.data_ptr() == std[1:].data_ptr()


def test_logits_follow_from_the_head() -> None:
    features = some()
    torch.testing.assert_close(
        features.logits, F.linear(features.avg, features.head.weight, features.head.bias.double())
    )
    assert (None, "logits") not in features.columns
    assert features.classes == 2
    torch.testing.assert_close(features[2:4].logits, features.logits[2:4])


def test_given_logits_are_kept() -> None:
    logits = torch.rand(7, 2, dtype=torch.float64)
    assert torch.equal(some(logits=logits).logits, logits)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_features_have_float32_logits(dtype: torch.dtype) -> None:
    features = some(dtype=dtype)
    assert features.avg.dtype == dtype
    assert features.logits.dtype == torch.float32
    assert features.to(torch.float32).avg.dtype == torch.float32


@pytest.mark.parametrize("head", [(np.ones((2, 4), np.float32), None), (torch.ones(2, 4), np.zeros(2))])
def test_head_from_arrays_with_or_without_bias(head: tuple) -> None:
    features = Features(avg=torch.ones(1, 4), head=head)
    torch.testing.assert_close(features.logits.double(), torch.full((1, 2), 4.0, dtype=torch.float64))


def test_layers_have_names() -> None:
    features = some()
    assert list(features.layers) == ["a.b/c", "plain"]
    assert features.layers["a.b/c"].std.shape == (7, 5)
    assert features.layers["plain"].std is None
    assert features.get("std", "plain") is None


@settings(max_examples=40, deadline=None)
@given(n=st.integers(1, 9), data=st.data())
def test_any_index_picks_the_same_rows_of_every_column(n: int, data: st.DataObject) -> None:
    features = some(n)
    rows = np.arange(n)
    index = data.draw(
        st.one_of(
            st.slices(n),
            st.lists(st.integers(-n, n - 1), max_size=5).map(lambda v: np.array(v, dtype=np.int64)),
            st.lists(st.booleans(), min_size=n, max_size=n).map(np.array),
        )
    )
    if isinstance(index, slice) and index.step is not None and index.step < 0:
        index = slice(index.start, index.stop, None)
    picked, expected = features[index], rows[index]
    assert len(picked) == len(expected)
    for key, column in features.columns.items():
        assert torch.equal(picked.columns[key], column[torch.from_numpy(expected)])
    assert torch.equal(picked.labels, features.labels[torch.from_numpy(expected)])


@pytest.mark.parametrize("index", [0, 3, -1, -7, np.int64(2)])
def test_one_sample_stays_a_feature_set(index: int) -> None:
    features = some()
    assert torch.equal(features[index].avg, features.avg[[int(index)]])


@pytest.mark.parametrize("index", [7, -8])
def test_index_out_of_range(index: int) -> None:
    with pytest.raises(IndexError):
        some()[index]


@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_batches_concatenate_to_the_whole(size: int) -> None:
    features = some()
    parts = list(features.batches(size))
    assert all(len(part) == size for part in parts[:-1])
    assert same(Features.concatenate(parts), features)
    with pytest.raises(InputError, match="at least one"):
        list(features.batches(0))


def test_concatenate_refuses_what_does_not_belong_together() -> None:
    with pytest.raises(InputError, match="Nothing"):
        Features.concatenate([])
    with pytest.raises(InputError, match="two different models"):
        Features.concatenate([some(), some(fingerprint="other")])
    with pytest.raises(InputError, match="different columns"):
        Features.concatenate([some(), some(layers=None)])
    with pytest.raises(InputError, match="different columns"):
        Features.concatenate([some(), some(labels=None)])
    assert len(Features.concatenate([some(), some(fingerprint=None)])) == 14


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"avg": None, "std": None, "layers": None, "labels": None, "head": None}, "at least one"),
        ({"labels": [0, 1]}, "number of samples"),
        ({"std": torch.rand(6, 3)}, "number of samples"),
        ({"avg": torch.rand(7, 4, 2, 2)}, "matrix"),
        ({"avg": torch.ones(7, 4, dtype=torch.long)}, "floating"),
        ({"avg": torch.ones(7, 5)}, "reads 4 features but avg has 5"),
        ({"logits": torch.ones(7, 3)}, "2 classes but logits has 3"),
        ({"labels": torch.rand(7)}, "integers"),
        ({"labels": torch.ones(7, 2, dtype=torch.long)}, "vector"),
        ({"head": (torch.ones(2, 4), torch.ones(3))}, "bias"),
        ({"std": torch.ones(7, 0)}, "no columns"),
    ],
)
def test_mismatches_are_named(changes: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        some(**changes)


def test_among_some_classes_head_logits_and_labels_are_those_of_these_alone() -> None:
    z, w, b, y = torch.rand(6, 3), torch.rand(4, 3), torch.rand(4), torch.tensor([0, 1, 2, 3, 2, 0])
    kept = torch.tensor([0, 2])
    for whole in (Features(avg=z, labels=y, head=(w, b)), Features(avg=z, logits=z @ w.T + b, labels=y)):
        rows = torch.isin(y, kept).nonzero().flatten()
        found = whole.subset(rows).among(kept)
        assert found.labels.tolist() == [0, 1, 1, 0]
        assert found.classes == 2
        torch.testing.assert_close(found.logits, (z @ w.T + b)[rows][:, kept])
        assert whole.among(kept, labelled=False).labels is None
        assert len(whole.among(kept, labelled=False)) == 6
        with pytest.raises(InputError, match="none of the classes"):
            whole.among(kept)
    assert Features(avg=z, labels=y).among(torch.arange(4)).labels.tolist() == y.tolist()


def test_unchecked_features_are_the_tensors_themselves():
    z, s = torch.rand(3, 4), torch.rand(3, 5)
    features = Features.unchecked({"avg": z, "std@layer3": s})
    assert features.avg is z
    assert features.layers["layer3"].std is s
    assert features.available == {"avg", "std@layer3"}
    assert len(features) == 3
