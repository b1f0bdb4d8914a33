"""``heat-ood contrast``: ID images, distorted, and a model to stored features."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .._model_options import ModelOptions, with_model_options
from .._options import Json, Out, Overwrite
from .._registry import command, defaults_of
from .._storing import store, tell

__all__ = ["contrast"]


def library() -> dict[str, Any]:
    """What the library takes for options that are left out."""
    from ...features import Extractor

    found = defaults_of(Extractor.contrast)
    return found | {"kind": ", ".join(found["kinds"])}


@command(order=30, interrupted="run the same command again to go on", defaults=library, arguments={"kinds": "kind"})
@with_model_options
def contrast(
    model_options: ModelOptions,
    images: Annotated[
        Path, typer.Option(help="ID images, best those that the model was trained on: a folder, or an .npz file.")
    ],
    out: Out,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            help="A distortion; give it several times for several: jigsaw-2, jigsaw-4, mixup, cutmix, noise, blur, "
            "rotate, invert, colour, tone, zoom, warp, phase."
        ),
    ] = None,
    samples: Annotated[
        int | None, typer.Option(min=1, help="So many, several of an image if need be; by default each image once.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of the order and of the distortions.")] = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Distort ID images, run them through a frozen model and store its features, for fit --contrast.

    Interrupted, the same command goes on where it was.

    [dim]Examples:[/dim]

      heat-ood contrast --model timm:resnet34 --pretrained --images train/ --out features/contrast

      heat-ood fit features/train --out detector --contrast features/contrast
    """
    from ...features import CONTRAST, check_kinds

    kinds = check_kinds(kind or CONTRAST)
    given: dict[str, Any] = {} if seed is None else {"seed": seed}
    features, result = store(
        model_options,
        images,
        out,
        lambda extractor, loader, anew, _: extractor.contrast(
            loader, out, kinds, samples=samples, overwrite=anew, **given
        ),
        labels=False,
        overwrite=overwrite,
        kinds=kinds,
    )
    assert features.labels is not None
    del result["classes"]
    counts = dict(zip(kinds, features.labels.bincount(minlength=len(kinds)).tolist(), strict=True))
    tell(result | {"kinds": counts}, json, kinds=", ".join(f"{name} {n:,}" for name, n in counts.items()))
