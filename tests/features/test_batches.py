"""What loaders yield, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from heat_ood.errors import InputError
from heat_ood.features import Extractor, Features


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))


def images(n: int = 4) -> Tensor:
    return torch.rand(n, 3, 8, 8)


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.fc = nn.Embedding(10, 6), nn.Linear(6, 3)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> dict[str, Tensor]:
        x = self.embed(input_ids)
        return {"logits": self.fc(x[:, 0]), "hidden": x}


def test_dictionaries_of_inputs() -> None:
    model, ids = TwoInputs(), torch.randint(0, 10, (4, 5))
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": torch.arange(4), "text": ["a"] * 4}
    features = Extractor(model).extract([batch, batch])
    assert len(features) == 8
    assert features.labels.tolist() == [0, 1, 2, 3] * 2
    torch.testing.assert_close(features.std[:4], model.embed(ids).detach()[:, 1:].std(1, correction=0))


@pytest.mark.parametrize("form", ["images", "pair", "list", "image", "pixel_values", "triple", "numpy"])
def test_forms_of_a_batch(form: str) -> None:
    model, x, y = network(), images(), torch.tensor([0, 1, 2, 1])
    batch: Any = {
        "images": x,
        "pair": (x, y),
        "list": [x],
        "image": {"image": x, "label": y},
        "pixel_values": {"pixel_values": x, "target": y},
        "triple": (x, y.int(), ["path"] * 4),
        "numpy": x.numpy(),
    }[form]
    features = Extractor(model).extract([batch])
    assert torch.equal(features.avg, Extractor(model)(x).avg)
    assert features.labels is None if form in ("images", "list", "numpy") else features.labels.tolist() == y.tolist()


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([], "no batches"),
        (["text"], "type str"),
        ([()], "empty batch"),
        ([torch.ones(0, 3, 8, 8)], "no samples"),
        ([(torch.ones(2, 3, 8, 8), torch.ones(3, dtype=torch.long))], "2 samples but 3 labels"),
        ([(torch.ones(2, 3, 8, 8), torch.ones(2))], "integers"),
        (
            [(torch.rand(2, 3, 8, 8), torch.ones(2, dtype=torch.long)), torch.rand(2, 3, 8, 8)],
            "Some batches have labels",
        ),
        ([{"a": torch.ones(2, 3), "b": torch.ones(2, 3)}], "None of the batch's entries"),
    ],
)
def test_batches_that_cannot_be_read(batches: list[Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Extractor(network()).extract(batches)


def test_a_loader_that_shuffles_is_refused() -> None:
    data = TensorDataset(images())
    with pytest.raises(InputError, match="shuffle=False"):
        Extractor(network()).extract(DataLoader(data, shuffle=True))


def test_non_finite_features_are_counted() -> None:
    x = images()
    x[1] = float("inf")
    with pytest.raises(InputError, match=r"avg is not finite for 1 of 4 samples, in batch 2"):
        Extractor(network()).extract([images(), x])


def test_overflow_of_the_stored_type() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2))
    with pytest.raises(InputError, match="65504"):
        Extractor(model).extract([torch.full((2, 2), 1e6)], dtype=torch.float16)
    with pytest.raises(InputError, match="cannot be stored"):
        Extractor(model).extract([torch.ones(2, 2)], dtype=torch.bfloat16)


def test_in_memory_equals_batch_by_batch() -> None:
    model, x = network(), images(10)
    extractor = Extractor(model, layers="stages")
    features = extractor.extract(DataLoader(TensorDataset(x, torch.arange(10)), batch_size=4))
    assert isinstance(features, Features)
    assert features.fingerprint == extractor.fingerprint
    for part, batch in zip(features.batches(4), x.split(4), strict=True):
        assert torch.equal(part.avg, extractor(batch).avg)


class Stream(IterableDataset[Tensor]):
    def __iter__(self) -> Iterator[Tensor]:
        return iter(images())


class Module:
    def train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(TensorDataset(images()))


NO_LOADERS = {
    "tensor": (images(), "DataLoader(TensorDataset(images, labels), batch_size=64)"),
    "array": (images().numpy(), "ndarray of samples"),
    "pair": ((images(), torch.arange(4)), "tuple of samples"),
    "dataset": (TensorDataset(images()), "DataLoader(dataset, batch_size=64)"),
    "stream": (Stream(), "Where it yields whole batches, batch_size=None."),
    "data module": (Module(), "Module.train_dataloader() gives one"),
    "path": (Path("images/train"), "'images/train', a path is no loader"),
    "string": ("images/train", "DataLoader(open_images(path), batch_size=64)"),
    "dictionary": ({"pixel_values": images()}, "builtins.dict is no loader"),
    "features": (Features(avg=torch.rand(3, 2)), "features already"),
    "number": (64, "builtins.int is no loader"),
    "nothing": (None, "pass a DataLoader"),
}


@pytest.mark.parametrize("name", NO_LOADERS)
@pytest.mark.parametrize("how", ["extract", "contrast"])
def test_what_is_no_loader_is_told_from_one(name: str, how: str) -> None:
    given, message = NO_LOADERS[name]
    with pytest.raises(InputError, match="pass a DataLoader") as caught:
        getattr(Extractor(network()), how)(given)
    assert message in str(caught.value)


@pytest.mark.parametrize("loader", [[images(), images()], iter([(images(), torch.arange(4))]), (images(2), images(2))])
def test_anything_that_yields_batches_is_a_loader(loader: Any) -> None:
    assert len(Extractor(network()).extract(loader)) in (4, 8)
