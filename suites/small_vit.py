"""A small vision transformer for CIFAR-10, as ``experiments/networks.py`` trains it."""

from __future__ import annotations

import importlib
from functools import cache
from itertools import chain, pairwise
from typing import Any

import torch
from torch import Tensor, nn

WIDTH, DEPTH, HEADS = 128, 6, 4


def cifar10() -> nn.Module:
    """timm's vision transformer on 4 × 4 tokens of 8 × 8 pixels, pooled by the average; 0.9 million parameters."""
    model: nn.Module = vision_transformer()(
        img_size=32,
        patch_size=8,
        embed_layer=Stem,
        embed_dim=WIDTH,
        depth=DEPTH,
        num_heads=HEADS,
        mlp_ratio=2,
        class_token=False,
        global_pool="avg",
        num_classes=10,
    )
    return model


@cache
def repaired() -> torch.library.Library | None:
    """What a torchvision that is not of this torch lacks to be imported; the network needs none of its operators."""
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        return library
    return None


def vision_transformer() -> Any:
    repaired()
    return importlib.import_module("timm.models.vision_transformer").VisionTransformer


class Stem(nn.Module):
    """Tokens from three strided convolutions: without them a ViT learns little in a few epochs."""

    def __init__(self, embed_dim: int, **_: Any) -> None:
        super().__init__()
        widths = (3, embed_dim // 4, embed_dim // 2)
        before = [(nn.Conv2d(i, o, 3, 2, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU()) for i, o in pairwise(widths)]
        self.convolutions = nn.Sequential(*chain(*before), nn.Conv2d(widths[-1], embed_dim, 3, 2, 1))
        self.num_patches, self.grid_size, self.patch_size = 16, (4, 4), (8, 8)

    def forward(self, x: Tensor) -> Tensor:
        maps: Tensor = self.convolutions(x)
        return maps.flatten(2).transpose(1, 2)
