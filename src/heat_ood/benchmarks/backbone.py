"""ResNets for images of 32 × 32: timm's, with a 3 × 3 stem in place of the strided 7 × 7 one and its pooling."""

from __future__ import annotations

from torch import nn

from ..errors import InputError
from ..images import IMAGENET
from ..models import new_model
from ._datasets import DATASETS

__all__ = [
    "RESNETS",
    "build_backbone",
    "resnet18_cifar10",
    "resnet18_cifar100",
    "resnet34_cifar10",
    "resnet34_cifar100",
    "resnet50_cifar10",
    "resnet50_cifar100",
]

RESNETS = ("resnet18", "resnet34", "resnet50")


def build_backbone(name: str, classes: int) -> nn.Module:
    """timm's ResNet with random weights and the 3 × 3 stem, which timm's own settings cannot express.

    It asks for images of 32 × 32, normalised as the CIFAR with so many classes.

    Args:
        name: one of ``RESNETS``.
        classes: outputs of the head.

    Example:
        >>> build_backbone("resnet34", 10).conv1
        Conv2d(3, 64, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1), bias=False)
    """
    if name not in RESNETS:
        raise InputError(
            f"There is no {name!r} with a 3 × 3 stem. There are {', '.join(RESNETS)}; give another network as "
            "package.module:function."
        )
    if classes < 1:
        raise InputError(f"A head cannot have {classes} outputs. Pass the number of classes.")
    model = new_model(f"timm:{name}?num_classes={classes}")
    stem = nn.Conv2d(3, 64, 3, stride=1, padding=1, bias=False)
    nn.init.kaiming_normal_(stem.weight, mode="fan_out", nonlinearity="relu")
    model.conv1, model.maxpool = stem, nn.Identity()
    mean, std = next(((d.mean, d.std) for d in DATASETS.values() if d.classes == classes), IMAGENET)
    asked = {"input_size": (3, 32, 32), "mean": mean, "std": std, "interpolation": "bilinear", "crop_pct": 1.0}
    model.pretrained_cfg = asked  # type: ignore[assignment]
    return model


def resnet18_cifar10() -> nn.Module:
    """ResNet-18 for CIFAR-10."""
    return build_backbone("resnet18", 10)


def resnet18_cifar100() -> nn.Module:
    """ResNet-18 for CIFAR-100."""
    return build_backbone("resnet18", 100)


def resnet34_cifar10() -> nn.Module:
    """ResNet-34 for CIFAR-10, the paper's."""
    return build_backbone("resnet34", 10)


def resnet34_cifar100() -> nn.Module:
    """ResNet-34 for CIFAR-100, the paper's."""
    return build_backbone("resnet34", 100)


def resnet50_cifar10() -> nn.Module:
    """ResNet-50 for CIFAR-10."""
    return build_backbone("resnet50", 10)


def resnet50_cifar100() -> nn.Module:
    """ResNet-50 for CIFAR-100."""
    return build_backbone("resnet50", 100)
