"""Training a backbone: the network, the recipe, and that an interruption leaves no trace."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from cifar_data import write_cifar, write_cifar10
from heat_ood import Extractor
from heat_ood.benchmarks import _training as training
from heat_ood.benchmarks._datasets import DATASETS
from heat_ood.benchmarks._readers import MissingData
from heat_ood.benchmarks._training import TrainingRecipe, augment, train_backbone
from heat_ood.benchmarks.backbone import RESNETS, build_backbone
from heat_ood.errors import FormatError, InputError
from heat_ood.images import Preprocessing
from heat_ood.models import load_model

MODULE = "tiny_network_of_backbone_tests"
SOURCE = """
from torch import nn

def small():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=4), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.1),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10),
    )
def narrow(): return nn.Sequential(nn.Flatten(), nn.Linear(3072, 3))
"""
TINY = TrainingRecipe(model=f"{MODULE}:small", epochs=3, batch_size=32, lr=0.1)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / f"{MODULE}.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop(MODULE, None)
    return tmp_path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """160 training and 60 test images whose colour tells their class."""
    rng, folder = np.random.default_rng(0), tmp_path / "cifar-10-batches-bin"
    colours = rng.integers(0, 256, (10, 1, 1, 3))
    for name, n in (*((f"data_batch_{i}", 32) for i in range(1, 6)), ("test_batch", 60)):
        labels = rng.integers(0, 10, n)
        noise = rng.integers(-20, 21, (n, 32, 32, 3))
        write_cifar(folder / f"{name}.bin", np.clip(colours[labels] + noise, 0, 255).astype(np.uint8), labels)
    return tmp_path


@pytest.mark.parametrize(("name", "dataset"), [*((name, "cifar10") for name in RESNETS), ("resnet34", "cifar100")])
def test_the_stem_is_for_small_images(name: str, dataset: str) -> None:
    model: Any = load_model(f"heat_ood.benchmarks.backbone:{name}_{dataset}")
    assert (model.conv1.kernel_size, model.conv1.stride) == ((3, 3), (1, 1))
    assert isinstance(model.maxpool, nn.Identity)
    assert Preprocessing.from_config(model.pretrained_cfg) == DATASETS[dataset].preprocessing
    with torch.no_grad():
        maps = model.forward_features(torch.zeros(1, 3, 32, 32))
        assert maps.shape[2:] == (4, 4)
        assert model(torch.zeros(1, 3, 32, 32)).shape == (1, DATASETS[dataset].classes)


def test_the_extractor_finds_the_head_of_the_papers_network() -> None:
    features = Extractor(build_backbone("resnet34", 10).eval())(torch.rand(2, 3, 32, 32))
    assert features.avg is not None
    assert features.std is not None
    assert features.avg.shape == features.std.shape == (2, 512)
    assert features.logits is not None
    assert features.logits.shape == (2, 10)


@pytest.mark.parametrize(("name", "classes"), [("resnet101", 10), ("vit", 10), ("resnet18", 0)])
def test_a_network_that_cannot_be_built(name: str, classes: int) -> None:
    with pytest.raises(InputError, match=r"There is no|0 outputs"):
        build_backbone(name, classes)


def test_without_timm_the_install_command_is_given(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(InputError, match=r"pip install 'heat-ood\[timm\]'"):
        train_backbone(data, "out", TrainingRecipe(epochs=1))


def test_a_crop_is_a_window_of_the_padded_image() -> None:
    images = torch.arange(1, 13, dtype=torch.uint8).view(1, 1, 3, 4).repeat(400, 1, 1, 1)
    padded = torch.nn.functional.pad(images[0, 0], [4] * 4)
    windows = [padded[i : i + 3, j : j + 4] for i in range(9) for j in range(9)]
    allowed = {tuple(w.flatten().tolist()) for w in (*windows, *(w.flip(1) for w in windows))}
    found = [tuple(x.flatten().tolist()) for x in augment(images, torch.Generator().manual_seed(0))]
    assert set(found) <= allowed
    assert len(set(found)) > 0.8 * len(allowed)
    mirrored = sum(f == tuple(images[0, 0].flip(1).flatten().tolist()) for f in found)
    plain = sum(f == tuple(images[0, 0].flatten().tolist()) for f in found)
    assert mirrored > 0
    assert plain > 0


def test_augmentation_follows_the_generator() -> None:
    images = torch.randint(256, (8, 3, 32, 32), dtype=torch.uint8)
    one, other, third = (augment(images, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(one, other)
    assert not torch.equal(one, third)


def test_it_learns_and_loads_again(data: Path) -> None:
    trained = train_backbone(data, "out", replace(TINY, epochs=12))
    assert trained.losses[-1] < 0.7 * trained.losses[0]
    assert trained.accuracy > 0.5
    model = load_model(trained.model, trained.weights)
    images = training.open_cifar_set(data, "cifar10", "test")
    images.preprocessing = DATASETS["cifar10"].preprocessing
    with torch.no_grad():
        logits = model(torch.stack([images[i][0] for i in range(60)]))
    assert float((logits.argmax(1).numpy() == images.targets).mean()) == pytest.approx(trained.accuracy)

    facts = json.loads(Path("out/backbone.json").read_text())
    assert facts["format"] == "heat-ood/backbone"
    assert facts["recipe"]["epochs"] == 12
    assert facts["accuracy"] == trained.accuracy
    assert facts["versions"]["torch"] == torch.__version__
    assert facts["preprocessing"]["mean"] == list(DATASETS["cifar10"].mean)
    assert sorted(f.name for f in Path("out").iterdir()) == ["backbone.json", "model.safetensors"]


def test_the_same_recipe_gives_the_same_weights_and_another_seed_others(data: Path) -> None:
    for out, recipe in (("a", TINY), ("b", TINY), ("c", replace(TINY, seed=1))):
        torch.manual_seed(hash(out) % 1000)
        train_backbone(data, out, recipe)
    a, b, c = (Path(out, "model.safetensors").read_bytes() for out in "abc")
    assert a == b
    assert a != c


class Killed(BaseException):
    """Ends a run as a kill would: nothing is cleaned up."""


@pytest.mark.parametrize("steps", [1, 5, 6, 9, 15])
def test_a_kill_at_any_point_leaves_the_same_weights(data: Path, monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    train_backbone(data, "whole", TINY)
    original, left = training.augment, [steps]

    def deadly(*arguments: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            raise Killed
        return original(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(training, "augment", deadly)
        with pytest.raises(Killed):
            train_backbone(data, "cut", TINY)
    assert not Path("cut/model.safetensors").exists()
    torch.manual_seed(steps)
    torch.rand(steps)
    again = train_backbone(data, "cut", TINY)
    assert Path("cut/model.safetensors").read_bytes() == Path("whole/model.safetensors").read_bytes()
    assert again.losses == train_backbone(data, "whole", TINY).losses
    assert not Path("cut/checkpoint.safetensors").exists()


@pytest.mark.parametrize("name", ["checkpoint", "accuracy_of", "finish"])
def test_a_kill_around_the_files(data: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    train_backbone(data, "whole", TINY)

    def deadly(*_: Any) -> Any:
        raise Killed

    with monkeypatch.context() as patch:
        if name == "checkpoint":
            patch.setattr("os.replace", deadly)
        else:
            patch.setattr(training, name, deadly)
        with pytest.raises(Killed):
            train_backbone(data, "cut", TINY)
    train_backbone(data, "cut", TINY)
    assert Path("cut/model.safetensors").read_bytes() == Path("whole/model.safetensors").read_bytes()


def test_a_finished_backbone_is_not_trained_again(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = train_backbone(data, "out", TINY)
    monkeypatch.setattr(training, "fit", None)
    assert train_backbone(data, "out", TINY) == first
    with pytest.raises(InputError, match="holds a backbone of another recipe"):
        train_backbone(data, "out", replace(TINY, lr=0.2))
    Path("out/backbone.json").write_text("{")
    with pytest.raises(FormatError, match=r"backbone\.json is damaged"):
        train_backbone(data, "out", TINY)


@pytest.mark.parametrize("what", ["recipe", "data", "damage"])
def test_a_checkpoint_of_something_else(data: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(training, "accuracy_of", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            train_backbone(data, "out", TINY)
    recipe = replace(TINY, epochs=4) if what == "recipe" else TINY
    if what == "data":
        write_cifar10(data / "cifar-10-batches-bin", a_batch=32)
    if what == "damage":
        Path("out/checkpoint.safetensors").write_bytes(b"hello")
    message = "is damaged. Delete it to train" if what == "damage" else "another recipe or other data"
    with pytest.raises((InputError, FormatError), match=message):
        train_backbone(data, "out", recipe)


@pytest.mark.parametrize("place", [".", "cifar-10-batches-bin"])
def test_the_folder_of_the_files_or_the_root(data: Path, place: str) -> None:
    assert train_backbone(data / place, "out", replace(TINY, epochs=1)).losses


def test_fewer_images_than_a_batch(data: Path) -> None:
    assert train_backbone(data, "out", replace(TINY, epochs=2, batch_size=1000)).losses


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dataset": "mnist"}, "no data set 'mnist'.*There are cifar10, cifar100"),
        ({"model": "timm:vit_tiny"}, "no network to train.*timm:resnet34"),
        ({"model": "resnet34"}, "no network to train"),
        ({"model": f"{MODULE}:narrow"}, "Give one with 10 outputs"),
        ({"epochs": 0}, "epochs is 0"),
        ({"batch_size": 1}, "batch_size is 1"),
        ({"lr": 0.0}, "lr is 0.0"),
        ({"lr": float("nan")}, "lr is nan"),
        ({"lr": 1e30}, "The loss is not finite in epoch 1.*Lower lr"),
        ({"weight_decay": -1.0}, "weight_decay is -1.0"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_arguments_that_cannot_be_meant(data: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        train_backbone(data, "out", replace(TINY, **changes))


def test_no_data(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match="binary version, https"):
        train_backbone(tmp_path, "out", TINY)
    assert not Path("out").exists()


def test_the_schedule_is_a_cosine(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = []

    class Watched(torch.optim.SGD):
        def step(self, *arguments: Any) -> Any:  # type: ignore[override]
            rates.append(self.param_groups[0]["lr"])
            return super().step(*arguments)

    monkeypatch.setattr(torch.optim, "SGD", Watched)
    train_backbone(data, "out", replace(TINY, epochs=2, lr=0.4))
    assert len(rates) == 2 * 5
    np.testing.assert_allclose(rates, 0.2 * (1 + np.cos(np.pi * np.arange(10) / 10)), rtol=1e-12)


def test_a_real_network_trains(data: Path) -> None:
    few = data / "few"
    write_cifar10(few, a_batch=2, tests=4)
    trained = train_backbone(few, "out", TrainingRecipe(model="timm:resnet18", epochs=1, batch_size=5))
    assert trained.model == "heat_ood.benchmarks.backbone:resnet18_cifar10"
    assert trained.facts["versions"]["timm"]
    model = load_model(trained.model, trained.weights)
    assert model(torch.zeros(1, 3, 32, 32)).shape == (1, 10)
