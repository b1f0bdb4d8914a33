"""One call from a model and its data to a guard, and back from the folder that keeps it."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import heat_ood
from heat_ood import HEAT, Extractor, FormatError, InputError, Residual, create, protect
from heat_ood.errors import Notice
from heat_ood.features import Guard

pytestmark = [
    pytest.mark.filterwarnings("ignore:The residual of:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::heat_ood.errors.Notice"),
]
QUICK = Residual(joint=True, epochs=1, hidden=8, depth=3, contrast_share=1.0)


def network() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        first = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        second = nn.Sequential(nn.Conv2d(8, 12, 3, padding=1), nn.ReLU())
        return nn.Sequential(first, second, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 3)).eval()


def images(n: int, seed: int) -> DataLoader[Any]:
    g = torch.Generator().manual_seed(seed)
    data = TensorDataset(torch.rand(n, 3, 8, 8, generator=g), torch.arange(n) % 3)
    data.classes = ["ant", "bee", "cat"]  # type: ignore[attr-defined]
    return DataLoader(data, batch_size=16)


def same(one: Guard, other: Guard) -> bool:
    x = torch.rand(5, 3, 8, 8, generator=torch.Generator().manual_seed(9))
    return all(torch.equal(a, b) for a, b in zip(one(x), other(x), strict=True))


def test_from_loaders_to_decisions(tmp_path: Path) -> None:
    guard = protect(network(), images(90, 0), images(60, 1), tmp_path / "g", detector=HEAT(residual=QUICK))
    logits, score, p_value = guard(torch.rand(4, 3, 8, 8))
    assert logits.shape == (4, 3)
    assert score.shape == p_value.shape == (4,)
    assert guard.classes == ("ant", "bee", "cat")
    assert set(guard.detector.residuals_) == {"joint"}, "corrected against distorted images"
    assert {f.name for f in (tmp_path / "g" / "features").iterdir()} == {"train", "contrast", "held-out"}
    in_memory = protect(network(), images(90, 0), images(60, 1), detector=HEAT(residual=QUICK))
    assert same(guard, in_memory)


def test_an_interrupted_call_goes_on_and_ends_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = protect(network(), images(90, 0), images(60, 1), tmp_path / "whole", detector=HEAT(residual=QUICK))

    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    for name in ("contrast", "fit", "calibrate"):
        with monkeypatch.context() as patch:
            patch.setattr(Extractor if name == "contrast" else HEAT, name, stop)
            with pytest.raises(KeyboardInterrupt):
                protect(network(), images(90, 0), images(60, 1), tmp_path / "part", detector=HEAT(residual=QUICK))
    with pytest.warns(Notice, match="is fitted already, and is reused"):
        again = protect(network(), images(90, 0), images(60, 1), tmp_path / "part", detector=HEAT(residual=QUICK))
    assert same(whole, again)


def test_other_training_samples_are_fitted_anew(tmp_path: Path) -> None:
    plain = {"detector": HEAT(residual=None)}
    protect(network(), images(90, 0), images(60, 1), tmp_path, **plain)
    with pytest.raises(InputError, match="of other samples"):
        protect(network(), images(90, 5), images(60, 1), tmp_path, **plain)


def test_a_named_model_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_small_nets.py").write_text(
        "import torch\nfrom torch import nn\n\n\ndef small():\n"
        "    first = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))\n"
        "    second = nn.Sequential(nn.Conv2d(8, 12, 3, padding=1), nn.ReLU())\n"
        "    return nn.Sequential(first, second, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 3))\n"
    )
    monkeypatch.chdir(tmp_path)
    extractor = Extractor(network(), layers="stages", name="my_small_nets:small")
    guard = protect(extractor, images(90, 0), images(60, 1), "g", detector=HEAT(residual=None))
    assert same(heat_ood.load("g"), guard)
    (record,) = json.loads(Path("g/guard.json").read_text())["models"].values()
    assert (record["model"], record["weights"], record["stages"]) == ("my_small_nets:small", "model.safetensors", True)


def test_a_model_without_a_name_is_passed(tmp_path: Path) -> None:
    guard = protect(network(), images(90, 0), images(60, 1), tmp_path, detector=HEAT(residual=None))
    with pytest.raises(InputError, match=r"has no name. Pass it: heat_ood.load\(…, model=…\)"):
        heat_ood.load(tmp_path)
    assert same(heat_ood.load(tmp_path, network()), guard)
    other = network()
    nn.init.zeros_(other[-1].weight)
    with pytest.raises(InputError, match="with other weights of this model"):
        heat_ood.load(tmp_path, other)


def test_a_detector_alone_is_opened_too(tmp_path: Path) -> None:
    features = Extractor(network()).extract(images(90, 0), progress=False)
    detector = create("knn", k=3).fit(features)
    detector.save(tmp_path / "knn")
    assert torch.equal(heat_ood.load(tmp_path / "knn").score(features), detector.score(features))
    with pytest.raises(FormatError, match="no detector"):
        heat_ood.load(tmp_path / "nothing")


@pytest.mark.parametrize("change", [{"layers": 3}, {"model": ["x"]}, {"unknown": 1}, {"weights": "../other"}, None])
def test_a_damaged_record_is_an_error(tmp_path: Path, change: dict[str, Any] | None) -> None:
    protect(network(), images(90, 0), images(60, 1), tmp_path, detector=HEAT(residual=None))
    content = json.loads((tmp_path / "guard.json").read_text())
    if change is None:
        content["version"] = 99
    else:
        next(iter(content["models"].values())).update(change)
    (tmp_path / "guard.json").write_text(json.dumps(content))
    with pytest.raises(FormatError):
        heat_ood.load(tmp_path, network())


class Words(nn.Module):
    """Called as models of Hugging Face are, with names."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(20, 8), nn.Linear(8, 3)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        mask = attention_mask[..., None].float()
        return self.head((self.embed(input_ids) * mask).sum(1) / mask.sum(1))


def texts(n: int, seed: int) -> list[dict[str, Tensor]]:
    g = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 20, (n, 6), generator=g)
    return [{"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": torch.arange(n) % 3}]


def test_texts_do_without_contrast_and_are_called_by_name() -> None:
    torch.manual_seed(0)
    guard = protect(Words(), texts(90, 0), texts(60, 1), detector=HEAT(residual=None))
    batch = {k: v for k, v in texts(4, 2)[0].items() if k != "labels"}
    assert torch.equal(guard(**batch).score, guard(batch).score)
    assert guard(**batch).p_value.shape == (4,)


def test_what_can_be_read_once_is_refused() -> None:
    def once() -> Iterator[Any]:
        yield from images(30, 0)

    with pytest.raises(InputError, match=r"train can be read only once.*Pass a DataLoader"):
        protect(network(), once(), images(30, 1))


def test_the_training_samples_cannot_calibrate() -> None:
    with warnings.catch_warnings(), pytest.raises(InputError, match="are among those that HEAT was fitted to"):
        protect(network(), images(90, 0), images(90, 0), detector=HEAT(residual=None))


def test_a_guard_that_is_there_stays_whole_until_the_new_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fitted and not calibrated, the new detector does not take the old one's place."""
    old = protect(network(), images(90, 0), images(60, 1), tmp_path, detector=HEAT(residual=None))
    with monkeypatch.context() as patch:
        patch.setattr(HEAT, "calibrate", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            protect(network(), images(90, 0), images(60, 1), tmp_path, detector=HEAT(residual=QUICK))
    assert same(heat_ood.load(tmp_path, network()), old)
    new = protect(network(), images(90, 0), images(60, 1), tmp_path, detector=HEAT(residual=QUICK))
    assert same(heat_ood.load(tmp_path, network()), new)
    assert {file.name for file in tmp_path.iterdir()} == {"detector", "guard.json", "features"}, "no checkpoint is left"
