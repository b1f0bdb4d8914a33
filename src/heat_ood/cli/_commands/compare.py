"""``heat-ood compare``: which composition does best on your own model, by ID data alone."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._options import Json
from .._output import emit, note, show, table
from .._registry import command, defaults_of

if TYPE_CHECKING:
    from ...selection import Comparison

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
    applied, given_to_fit = applicable(found, bounds)
    line = ["heat-ood", "fit", str(features), "--out", "detector", *given_to_fit]
    if against is None:
        line += ["--no-residual"]
    elif "--no-residual" not in line:
        line += ["--contrast", str(contrast)]
    command_line = shlex.join(line if seed is None else [*line, "--seed", str(seed)])
    if json:
        rows = {
            n: {t: {"fpr_at_95_id": v.fpr_at_95_id, "auroc": v.auroc} for t, v in r.items()}
            for n, r in found.rows.items()
        }
        numbers = {"mean_auroc": found.mean, "behind_the_best": found.worst, "best": found.best}
        emit({"priors": found.priors, "rows": rows, **numbers, "applied": applied, "command": command_line})
        return
    header, *body = found.table
    show(table(header, body, f"{', '.join(found.priors)}, by ID data alone"))
    note(f"best on average: {found.best}")
    if applied != found.best:
        note(f"fit has no option for it; best of those that it has: {applied}")
    show(f"next: {command_line}")


def applicable(found: Comparison, bounds: bool) -> tuple[str, list[str]]:
    """The best row that fit has options for, and these options."""
    ranked = sorted(found.rows, key=found.mean.__getitem__, reverse=True)
    options = ((row, of_bound(row) if bounds else of_rule(row, found.priors)) for row in ranked)
    return next((row, given) for row, given in options if given is not None)


def of_bound(row: str) -> list[str]:
    """The options of a residual: a bound b is 1 / (2 lam)."""
    bound, _, odds = row.removeprefix("bound ").partition(", odds ")
    return ["--lam", f"{1 / (2 * float(bound)):g}", "--odds", odds] if float(bound) else ["--no-residual"]


def of_rule(row: str, priors: Sequence[str]) -> list[str] | None:
    """The options of a composition; None where fit has none for it."""
    from ...selection import family_weights

    betas = {"equal weights": [], "maximum": ["--beta", "inf"], "β = 1": ["--beta", "1"], "β = -1": ["--beta", "-1"]}
    weights = dict.fromkeys(priors, 1.0)
    if row.endswith(" alone"):
        weights = {row.removesuffix(" alone"): 1.0}
    elif row.startswith("by family "):
        shares = map(float, row.removeprefix("by family ").split(":"))
        families = dict(zip(("energy", "relative", "densities"), shares, strict=True))
        weights = dict(zip(priors, family_weights(priors, families).tolist(), strict=True))
    elif row not in betas:
        return None
    used = {name: weight for name, weight in weights.items() if weight}
    if not used:
        return None
    given = [part for name in used for part in ("--prior", name)] + betas.get(row, [])
    alike = len(set(used.values())) == 1
    return given if alike else [*given, "--set", "weights=" + ",".join(f"{weight:.6g}" for weight in used.values())]
