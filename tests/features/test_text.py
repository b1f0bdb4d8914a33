"""Texts: what fills up a shorter one does not count, whatever stands beside it in a batch."""

from __future__ import annotations

import pytest
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DistilBertConfig,
    DistilBertForSequenceClassification,
    ViTConfig,
    ViTForImageClassification,
)

from heat_ood import Extractor
from heat_ood.features._pooling import pool

SIZES = {"vocab_size": 50, "num_labels": 3}
BERT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
MODELS = {
    "bert": lambda: BertForSequenceClassification(BertConfig(**SIZES, **BERT)),
    "distilbert": lambda: DistilBertForSequenceClassification(
        DistilBertConfig(**SIZES, dim=32, n_layers=2, n_heads=2, hidden_dim=64)
    ),
}
LAYERS = {
    "bert": ("bert.encoder.layer.0", "bert.encoder.layer.1"),
    "distilbert": ("distilbert.transformer.layer.0", "distilbert.transformer.layer.1"),
}


def batch(ids: torch.Tensor, filled: int = 0) -> dict[str, torch.Tensor]:
    ids = torch.cat([ids, torch.zeros(len(ids), filled, dtype=torch.long)], 1)
    mask = torch.ones_like(ids)
    mask[:, ids.shape[1] - filled :] = 0
    return {"input_ids": ids, "attention_mask": mask}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("first", [0, 6], ids=["first without filling", "first with filling"])
def test_filling_up_changes_no_feature(name: str, first: int) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = MODELS[name]().eval()
    extractor = Extractor(model, layers=LAYERS[name])
    ids = torch.randint(1, 50, (4, 9), generator=torch.Generator().manual_seed(1))
    extractor(batch(ids, first))  # the pass that finds where features flow
    short, long = extractor(batch(ids)), extractor(batch(ids, 5))
    assert set(short.columns) == set(long.columns)
    assert {(None, "avg"), (LAYERS[name][0], "std")} <= set(short.columns)
    for key in short.columns:
        torch.testing.assert_close(short.columns[key], long.columns[key], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("depth", "taken"), [(1, [0]), (2, [0, 1]), (3, [0, 1, 2]), (4, [0, 1, 2, 3]), (6, [1, 2, 3, 5]), (8, [1, 3, 5, 7])]
)
@pytest.mark.parametrize("name", ["bert", "distilbert", "vit"])
def test_the_stages_of_a_transformer_are_its_blocks_evenly_spaced(name: str, depth: int, taken: list[int]) -> None:
    sizes = {"hidden_size": 32, "num_hidden_layers": depth, "num_attention_heads": 2, "intermediate_size": 64}
    model: torch.nn.Module
    if name == "bert":
        model = BertForSequenceClassification(BertConfig(**SIZES, **sizes))
        prefix, inputs = "bert.encoder.layer", batch(torch.randint(1, 50, (4, 9)))
    elif name == "distilbert":
        model = DistilBertForSequenceClassification(
            DistilBertConfig(**SIZES, dim=32, n_layers=depth, n_heads=2, hidden_dim=64)
        )
        prefix, inputs = "distilbert.transformer.layer", batch(torch.randint(1, 50, (4, 9)))
    else:
        model = ViTForImageClassification(ViTConfig(image_size=16, patch_size=8, num_labels=3, **sizes))
        prefix, inputs = "", {"pixel_values": torch.rand(2, 3, 16, 16)}
    found = list(Extractor(model.eval(), layers="stages")(inputs).layers)
    if name == "vit":  # where its layers are depends on the version of transformers
        prefix = found[0].rpartition(".")[0]
        assert isinstance(model.get_submodule(prefix), torch.nn.ModuleList)
    assert found == [f"{prefix}.{i}" for i in taken]


def test_a_mask_is_the_same_as_leaving_out() -> None:
    x = torch.randn(3, 7, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    mask = torch.tensor([[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0, 0], [1, 1, 0, 0, 0, 0, 0]])
    found = pool(x, channel=2, patches=slice(1, None), mask=mask)
    for row, count in enumerate((7, 4, 2)):
        expected = pool(x[row : row + 1, 1:count], channel=2)
        torch.testing.assert_close(found.avg[row : row + 1], expected.avg)
        torch.testing.assert_close(found.std[row : row + 1], expected.std)
    nothing = pool(x, channel=2, mask=torch.zeros(3, 7))
    assert not nothing.std.any(), "a text without tokens has zeros, not NaN"


def test_a_mask_of_other_positions_is_not_used() -> None:
    maps = torch.randn(2, 5, 4)
    torch.testing.assert_close(pool(maps, channel=2, mask=torch.ones(2, 9)).std, pool(maps, channel=2).std)
