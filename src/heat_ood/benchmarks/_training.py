"""Training a CIFAR backbone by a standard recipe, checkpointed after every epoch and resumed bit for bit."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import FormatError, InputError
from ..images import ImageSet
from ..models import new_model
from ..progress import progress_bars
from ..residual import Checkpoint
from ._datasets import DATASETS, Dataset
from ._readers import SetSpec, open_set
from ._trained import Trained, finish, finished
from .backbone import RESNETS, build_backbone

__all__ = ["TrainingRecipe", "augment", "train_backbone"]

CHECKPOINT = "checkpoint.safetensors"
MOMENTUM, PADDING, TEST_BATCH = 0.9, 4, 500
Report = Callable[[int, int, dict[str, float]], None]


@dataclass(frozen=True)
class TrainingRecipe:
    r"""SGD with Nesterov momentum 0.9, random crops (padding 4) and flips, and a cosine schedule.

    .. math:: \eta_t = \tfrac12 \eta (1 + \cos(\pi t / T))

    A batch that is not full is left out of the epoch.

    Args:
        dataset: ``cifar10`` or ``cifar100``.
        model: ``timm:resnet18``, ``timm:resnet34`` or ``timm:resnet50``, which get a 3 × 3 stem, or
            ``package.module:function``, a function without arguments that returns an ``nn.Module``.
        epochs: passes over the training images.
        lr: the first learning rate.
        batch_size: images a step.
        weight_decay: of all parameters.
        seed: of the first weights, the order of the images, crops and flips.
    """

    dataset: str = "cifar10"
    model: str = "timm:resnet34"
    epochs: int = 200
    lr: float = 0.1
    batch_size: int = 128
    weight_decay: float = 5e-4
    seed: int = 0

    def check(self) -> None:
        """Refuse what cannot be meant."""
        if self.dataset not in DATASETS:
            raise InputError(f"There is no data set {self.dataset!r} to train on. There are {', '.join(DATASETS)}.")
        for name, least in (("epochs", 1), ("batch_size", 2), ("seed", 0)):
            if getattr(self, name) < least:
                raise InputError(f"{name} is {getattr(self, name)}. It must be at least {least}.")
        if not (math.isfinite(self.lr) and self.lr > 0):
            raise InputError(f"lr is {self.lr}. Pass a learning rate above 0; 0.1 is usual.")
        if not (math.isfinite(self.weight_decay) and self.weight_decay >= 0):
            raise InputError(f"weight_decay is {self.weight_decay}. Pass 0 or more; 5e-4 is usual.")

    @property
    def loads_as(self) -> str:
        """The name that :func:`heat_ood.models.load_model` takes."""
        source, _, name = self.model.partition(":")
        return f"heat_ood.benchmarks.backbone:{name}_{self.dataset}" if source == "timm" else self.model

    def build(self) -> nn.Module:
        """The network with the first weights that the seed draws."""
        source, _, name = self.model.partition(":")
        if not name or (source == "timm" and name not in RESNETS):
            known = ", ".join(f"timm:{n}" for n in RESNETS)
            raise InputError(f"{self.model!r} is no network to train. There are {known}, and package.module:function.")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            if source == "timm":
                return build_backbone(name, DATASETS[self.dataset].classes)
            return new_model(self.model)


def train_backbone(
    data: str | PathLike[str],
    out: str | PathLike[str],
    recipe: TrainingRecipe | None = None,
    *,
    device: str | torch.device | None = None,
    progress: bool = True,
) -> Trained:
    """Train a network on CIFAR; killed at any point, the same call goes on after the last finished epoch.

    On one machine and device, with the same number of threads, the weights are the same whether it was interrupted
    or not. The test images are looked at once, after the last epoch, for the accuracy alone.

    Args:
        data: the folder with the binary files, or the data root that it lies in.
        out: a folder for the weights, the facts and, while it trains, the checkpoint.
        recipe: how to train; None is ``TrainingRecipe()``.
        device: where to compute; None is CUDA where there is one, else the CPU.
        progress: show a bar, if there is a terminal.
    """
    recipe, folder = TrainingRecipe() if recipe is None else recipe, Path(out)
    recipe.check()
    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    sets = {split: open_cifar_set(Path(data), recipe.dataset, split) for split in ("train", "test")}
    identity = {"recipe": asdict(recipe), "data": {split: s.identity["checksums"] for split, s in sets.items()}}
    if (done := finished(folder, identity)) is not None:
        return done
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint = Checkpoint(folder / CHECKPOINT, json.dumps(identity, sort_keys=True))

    model = recipe.build().to(place)
    with torch.backends.cudnn.flags(deterministic=True, benchmark=False), progress_bars(progress) as bars:
        images, labels = pixels_of(sets["train"])
        losses = fit(model, images, labels, recipe, checkpoint, bars.add(f"{recipe.dataset} {recipe.model}"))
        accuracy = accuracy_of(model, sets["test"], DATASETS[recipe.dataset])
    found = {
        "accuracy": accuracy,
        **identity,
        "preprocessing": DATASETS[recipe.dataset].preprocessing.to_dict(),
        "losses": losses,
        "device": str(place),
    }
    done = finish(folder, model, recipe.loads_as, found)
    checkpoint.path.unlink(missing_ok=True)
    return done


def fit(
    model: nn.Module, images: Tensor, labels: Tensor, recipe: TrainingRecipe, checkpoint: Checkpoint, report: Report
) -> list[float]:
    """All epochs, from the checkpoint on; the mean loss of each."""
    dataset, place = DATASETS[recipe.dataset], next(model.parameters()).device
    size = min(recipe.batch_size, len(images))
    steps = len(images) // size
    optimiser = torch.optim.SGD(
        model.parameters(), recipe.lr, momentum=MOMENTUM, weight_decay=recipe.weight_decay, nesterov=True
    )
    losses = restore(checkpoint, model, optimiser)
    model.train()
    for epoch in range(len(losses), recipe.epochs):
        total = 0.0
        with torch.random.fork_rng(devices=[]):
            # Everything that is drawn in an epoch follows from the seed and its number: nothing needs to be kept.
            generator = torch.Generator().manual_seed(epoch_seed(recipe.seed, epoch))
            torch.manual_seed(epoch_seed(recipe.seed, epoch))
            order = torch.randperm(len(images), generator=generator)
            for step, chosen in enumerate(torch.split(order[: steps * size], size)):
                done = epoch * steps + step
                for group in optimiser.param_groups:
                    group["lr"] = 0.5 * recipe.lr * (1 + math.cos(math.pi * done / (recipe.epochs * steps)))
                x = normalise(augment(images[chosen], generator).to(place), dataset)
                loss = F.cross_entropy(logits_of(model, x, dataset), labels[chosen].to(place))
                optimiser.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                total += float(loss.detach())
                report(done + 1, recipe.epochs * steps, {"loss": float(loss.detach())})
        if not math.isfinite(total):
            raise InputError(
                f"The loss is not finite in epoch {epoch + 1}, so training has failed. Lower lr, which is {recipe.lr}."
            )
        losses.append(total / steps)
        save(checkpoint, model, optimiser, losses)
    return losses


def augment(images: Tensor, generator: torch.Generator) -> Tensor:
    """Random crops of uint8 images (n, c, h, w), padded by 4 black pixels a side, half of them mirrored.

    Example:
        >>> augment(torch.zeros(2, 3, 32, 32, dtype=torch.uint8), torch.Generator()).shape
        torch.Size([2, 3, 32, 32])
    """
    n, c, h, w = images.shape
    top, left = torch.randint(2 * PADDING + 1, (2, n, 1), generator=generator)
    mirrored = torch.rand(n, 1, generator=generator) < 0.5
    rows = top + torch.arange(h)
    columns = left + torch.where(mirrored, torch.arange(w - 1, -1, -1), torch.arange(w))
    padded = F.pad(images, [PADDING] * 4)
    every, channel = torch.arange(n).view(n, 1, 1, 1), torch.arange(c).view(1, c, 1, 1)
    return padded[every, channel, rows.view(n, 1, h, 1), columns.view(n, 1, 1, w)]


def normalise(images: Tensor, dataset: Dataset) -> Tensor:
    mean, std = (torch.tensor(v, device=images.device).view(1, -1, 1, 1) for v in (dataset.mean, dataset.std))
    return (images.float() / 255 - mean) / std


def logits_of(model: nn.Module, x: Tensor, dataset: Dataset) -> Tensor:
    logits = model(x)
    if not isinstance(logits, Tensor) or logits.shape != (len(x), dataset.classes):
        got = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise InputError(
            f"The network gives {got} for {len(x)} images of {dataset.classes} classes. Give one with "
            f"{dataset.classes} outputs."
        )
    return logits


@torch.no_grad()
def accuracy_of(model: nn.Module, images: ImageSet, dataset: Dataset) -> float:
    """The share of test images whose class is right."""
    model.eval()
    x, labels = pixels_of(images)
    place = next(model.parameters()).device
    right = [
        (logits_of(model, normalise(some.to(place), dataset), dataset).argmax(1).cpu() == known).sum()
        for some, known in zip(torch.split(x, TEST_BATCH), torch.split(labels, TEST_BATCH), strict=True)
    ]
    return float(sum(right)) / len(labels)


def epoch_seed(seed: int, epoch: int) -> int:
    return int(np.random.SeedSequence([seed, epoch]).generate_state(1)[0])


def open_cifar_set(data: Path, name: str, split: str) -> ImageSet:
    dataset = DATASETS[name]
    within = (data / dataset.folder).is_dir()
    spec = SetSpec(f"{name} ({split})", dataset.reader, dataset.folder if within else ".", split=split)
    return open_set(spec, data)


def pixels_of(images: ImageSet) -> tuple[Tensor, Tensor]:
    """All images as uint8 (n, 3, h, w), and their labels."""
    pixels = np.stack([np.asarray(images.read(row)) for row in images.rows])
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous(), torch.as_tensor(images.targets)


def save(checkpoint: Checkpoint, model: nn.Module, optimiser: torch.optim.Optimizer, losses: list[float]) -> None:
    tensors = {f"model.{key}": value.clone() for key, value in model.state_dict().items()}
    for name, parameter in model.named_parameters():
        if (kept := optimiser.state[parameter].get("momentum_buffer")) is not None:
            tensors[f"momentum.{name}"] = kept.clone()
    checkpoint.save(tensors, {"losses": losses})


def restore(checkpoint: Checkpoint, model: nn.Module, optimiser: torch.optim.Optimizer) -> list[float]:
    """Put the last saved state back; the losses of the epochs that are done."""
    try:
        found = checkpoint.load()
        if found is None:
            return []
        tensors, facts = found
        own = {key.removeprefix("model."): v for key, v in tensors.items() if key.startswith("model.")}
        model.load_state_dict(own)
        losses: list[float] = facts["losses"]
    except (FormatError, RuntimeError, KeyError) as error:
        raise FormatError(
            f"The checkpoint {checkpoint.path} is damaged. Delete it to train this backbone anew."
        ) from error
    except InputError as error:
        raise InputError(
            f"{checkpoint.path} is of a training with another recipe or other data. Name another folder, or delete it."
        ) from error
    for name, parameter in model.named_parameters():
        if (kept := tensors.get(f"momentum.{name}")) is not None:
            optimiser.state[parameter]["momentum_buffer"] = kept.to(parameter.device)
    return losses
