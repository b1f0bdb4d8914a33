"""``heat-ood compare``: which composition does best on your own model, by ID data alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .._options import Json
from .._output import emit, note, show, table
from .._registry import command, defaults_of

__all__ = ["compare"]


def library() -> dict[str, Any]:
    """What the library takes for options that are left out."""
    from ...selection import compare, compare_bounds

    found, of_bounds = defaults_of(compare), defaults_of(compare_bounds)
    return found | {"folds": f"{found['folds']}; {of_bounds['folds']} with --bounds"}


@command(order=40, defaults=library)
def compare(
    features: Annotated[Path, typer.Argument(help="Stored ID features, with labels: those that fit takes.")],
    contrast: Annotated[
        Path | None, typer.Option(help="Features of distorted ID images, as heat-ood contrast makes them.")
    ] = None,
    folds: Annotated[int | None, typer.Option(min=0, help="Groups of classes, each left out once; 0 for none.")] = None,
    bounds: Annotated[
        bool,
        typer.Option(
            "--bounds", help="Judge the residual's bound and odds instead, by distortions and classes unseen."
        ),
    ] = False,
    seed: Annotated[int | None, typer.Option(min=0, help="Of the split, the groups and the training.")] = None,
    json: Json = False,
) -> None:
    """Compare ways to compose the priors by ID data alone: classes left out, and distortions.

    [dim]Example:[/dim]

      heat-ood compare features/train --contrast features/contrast
    """
    from ...errors import InputError
    from ...features import Features
    from ...selection import compare as compare_rules
    from ...selection import compare_bounds

    train = Features.open(features)
    against = None if contrast is None else Features.open(contrast)
    if bounds and against is None:
        raise InputError("--bounds judges by distortions. Pass --contrast, which heat-ood contrast makes.")
    options = {"folds": folds, "seed": seed}
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if bounds and against is not None:
        found = compare_bounds(train, against, **given, progress=True)
    else:
        found = compare_rules(train, against, **given)
    if json:
        rows = {
            n: {t: {"fpr_at_95_id": v.fpr_at_95_id, "auroc": v.auroc} for t, v in r.items()}
            for n, r in found.rows.items()
        }
        numbers = {"mean_auroc": found.mean, "behind_the_best": found.worst, "best": found.best}
        emit({"priors": found.priors, "rows": rows, **numbers})
        return
    header, *body = found.table
    show(table(header, body, f"{', '.join(found.priors)}, by ID data alone"))
    note(f"best on average: {found.best}")
