"""``heat-ood extract``: images and a model to stored features."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .output import emit, facts, note, show
from .source import Recipe, loader_of, with_recipe

if TYPE_CHECKING:
    from ..features import Features

__all__ = ["extract"]


@with_recipe
def extract(
    recipe: Recipe,
    images: Annotated[
        Path,
        typer.Option(
            help="A folder of class folders, a flat folder (no labels), or an .npz file with images and perhaps labels."
        ),
    ],
    out: Annotated[
        Path, typer.Option(help="A folder for the features; what they were made of is written beside it, OUT.json.")
    ],
    limit: Annotated[int | None, typer.Option(min=1, help="So many images, spread evenly over the set.")] = None,
    no_labels: Annotated[
        bool, typer.Option("--no-labels", help="Leave the labels out, as for sets with other classes.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Start anew, even if there are features.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run images through a frozen model and store its features.

    Interrupted, the same command goes on where it was.

    [dim]Example:[/dim]

      heat-ood extract --model timm:resnet34 --pretrained --images train/ --out features/train
    """
    from ..features.manifest import MANIFEST, read_manifest
    from ..images import open_images
    from .sidecar import check_sidecar, write_sidecar

    if recipe.model is None:
        raise typer.BadParameter(
            "say which model reads the images: timm:NAME or package.module:function.", param_hint="--model"
        )
    found = open_images(images, labels=not no_labels, limit=limit, skip_unreadable=recipe.skip_unreadable)
    extractor = recipe.extractor()
    found.preprocessing = recipe.preprocessing(extractor.network, found)
    note(f"{len(found):,} images of {images}: {found.preprocessing}")

    record = {
        "model": recipe.model,
        "images": str(images),
        **found.identity,
        "preprocessing": found.preprocessing.to_dict(),
    }
    begun = not overwrite and (out / MANIFEST).exists() and read_manifest(out).count > 0
    known = begun and check_sidecar(out, record)
    if not begun:
        write_sidecar(out, record)
    features = extractor.extract(loader_of(found, recipe), out, overwrite=not begun)
    if begun and not known:
        write_sidecar(out, record)

    result = summary(features, out) | {
        "classes": record["classes"],
        "model": recipe.model,
        "preprocessing": record["preprocessing"],
    }
    if json:
        emit(result)
    else:
        show(
            facts(
                {
                    **result,
                    "columns": describe(features),
                    "preprocessing": found.preprocessing,
                    "classes": few(result["classes"]),
                }
            )
        )


def summary(features: Features, path: Path) -> dict[str, Any]:
    """What a feature set is, for people and for JSON."""
    return {
        "features": str(path),
        "samples": len(features),
        "columns": {name: widths(features, name) for name in sorted(features.available - {"labels", "head"})},
        "labels": features.labels is not None,
        "head": features.head is not None,
        "fingerprint": features.fingerprint,
    }


def widths(features: Features, name: str) -> int:
    column = features[:1].column(name)
    return 0 if column is None else column.shape[1]


def describe(features: Features) -> str:
    return ", ".join(f"{name} {widths(features, name)}" for name in sorted(features.available - {"labels", "head"}))


def few(names: list[str] | None) -> str:
    return "none" if names is None else f"{len(names)}: {', '.join(names[:5])}{', …' if len(names) > 5 else ''}"
