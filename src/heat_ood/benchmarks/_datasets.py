"""The data sets that backbones are trained on."""

from __future__ import annotations

from dataclasses import dataclass

from ..images import Preprocessing

__all__ = ["DATASETS", "Dataset"]


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
