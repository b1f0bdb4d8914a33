"""``heat-ood extract``: images and a model to stored features."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .._accuracy import accuracy_on
from .._engine import with_engine
from .._model_options import ModelOptions, with_model_options
from .._options import Json, Out, Overwrite, Part
from .._registry import command
from .._storing import store, tell
from .merge import merge

__all__ = ["extract"]


@command(order=20, interrupted="run the same command again to go on")
@with_engine(merge)
@with_model_options
def extract(
    model_options: ModelOptions,
    images: Annotated[
        Path,
        typer.Option(
            help="A folder of class folders, a flat folder (no labels), an .npz file with images and perhaps labels, a "
            "list of paths (.txt, .parquet), or WebDataset's tar files ('train-{000..099}.tar')."
        ),
    ],
    out: Out,
    limit: Annotated[int | None, typer.Option(min=1, help="So many images, spread evenly over the set.")] = None,
    no_labels: Annotated[
        bool, typer.Option("--no-labels", help="Leave the labels out, as for sets with other classes.")
    ] = False,
    shard: Part = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Run images through a frozen model and store its features.

    Interrupted, the same command goes on where it was.

    [dim]Examples:[/dim]

      heat-ood extract --model timm:resnet34 --pretrained --images train/ --out features/train

      heat-ood extract --model timm:resnet34 --pretrained --images train.parquet --out features/train --shard 3/64
    """
    features, result = store(
        model_options,
        images,
        out,
        lambda extractor, loader, anew, part: extractor.extract(loader, out, overwrite=anew, shard=part),
        labels=not no_labels,
        overwrite=overwrite,
        limit=limit,
        shard=shard,
    )
    right = accuracy_on(features, "these images", " If they are no ID images, leave out their labels with --no-labels.")
    result |= {} if right is None else right._asdict()
    shown = {} if right is None else {"accuracy": str(right)}
    if result.get("skipped"):
        shown["skipped"] = f"{len(result['skipped']):,}; their names are in {result['features']}.json"
    tell(result, json, classes=few(result["classes"]), **shown)


def few(names: list[str] | None) -> str:
    return "none" if names is None else f"{len(names)}: {', '.join(names[:5])}{', …' if len(names) > 5 else ''}"
