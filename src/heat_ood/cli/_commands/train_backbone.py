"""``heat-ood train-backbone``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .._options import Json
from .._output import emit, facts, note, show
from .._registry import command, defaults_of

__all__ = ["train_backbone"]


def library() -> dict[str, Any]:
    """What the library takes for options that are left out."""
    from ...benchmarks import TrainingRecipe

    return defaults_of(TrainingRecipe)


@command(order=130, interrupted="run the same command again to go on after the last finished epoch", defaults=library)
def train_backbone(
    data: Annotated[Path, typer.Argument(help="CIFAR's binary files: their folder, or the data root that it lies in.")],
    out: Annotated[Path, typer.Option(help="A folder for the weights and what they were made with.")],
    dataset: Annotated[str | None, typer.Option(help="cifar10 or cifar100.")] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="timm:resnet18, timm:resnet34 or timm:resnet50 (with a 3 × 3 stem), or package.module:function that "
            "returns an nn.Module."
        ),
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the training images.")] = None,
    lr: Annotated[float | None, typer.Option(help="The first learning rate; it falls to 0 as a cosine.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Images a step.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Of all parameters.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of the first weights, the order, crops and flips.")] = None,
    device: Annotated[str | None, typer.Option(help="Where to compute: cpu, cuda, mps, …")] = None,
    json: Json = False,
) -> None:
    """Train a CIFAR network by a standard recipe, for the suites cifar10 and cifar100.

    Interrupted, the same command goes on after the last finished epoch.

    [dim]Example:[/dim]

      heat-ood train-backbone data --dataset cifar10 --out data/backbones/cifar10-resnet34
    """
    from ...benchmarks import TrainingRecipe
    from ...benchmarks import train_backbone as train

    options: dict[str, Any] = {"dataset": dataset, "model": model, "epochs": epochs, "lr": lr, "seed": seed}
    options |= {"batch_size": batch_size, "weight_decay": weight_decay}
    recipe = TrainingRecipe(**{name: value for name, value in options.items() if value is not None})
    note(f"training {recipe.model} on {recipe.dataset}, {recipe.epochs} epochs")
    trained = train(data, out, recipe, device=device)
    if json:
        emit(trained.facts)
        return
    show(
        facts(
            {
                "weights": trained.weights,
                "model": trained.model,
                "accuracy": f"{100 * trained.accuracy:.2f} % of the test images",
                "loss": f"{trained.losses[0]:.3f} in the first epoch, {trained.losses[-1]:.3f} in the last",
                "load it": f"--model {trained.model} --weights {trained.weights}",
            }
        )
    )
