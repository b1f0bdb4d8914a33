"""ResNets for images of 32 × 32: timm's, with a 3 × 3 stem in place of the strided 7 × 7 one and its pooling."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from ..errors import InputError
from ..images import IMAGENET, Preprocessing
from ..models import from_timm

__all__ = [
    "DATASETS",
    "RESNETS",
    "Dataset",
    "build_backbone",
    "resnet18_cifar10",
    "resnet18_cifar100",
    "resnet34_cifar10",
    "resnet34_cifar100",
    "resnet50_cifar10",
    "resnet50_cifar100",
]

RESNETS = ("resnet18", "resnet34", "resnet50")


@dataclass(frozen=True)
class Dataset:
    """A CIFAR: its classes, the mean and spread of its channels, and where its files lie within a data root."""

    classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    reader: str
    folder: str

    @property
    def preprocessing(self) -> Preprocessing:
        return Preprocessing(size=(32, 32), mean=self.mean, std=self.std)


DATASETS = {
    "cifar10": Dataset(10, (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616), "cifar10-bin", "cifar-10-batches-bin"),
    "cifar100": Dataset(100, (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761), "cifar100-bin", "cifar-100-binary"),
}


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
    model = from_timm(f"{name}?num_classes={classes}", pretrained=False, own_weights=True)
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
