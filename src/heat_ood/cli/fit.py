"""``heat-ood fit``: stored features to a saved detector."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .output import emit, facts, show, table

if TYPE_CHECKING:
    from ..energies import Energy
    from ..residual import Residual

__all__ = ["fit", "training_table"]


def fit(
    features: Annotated[
        Path, typer.Argument(help="Stored ID features, best of the samples that the backbone was trained on.")
    ],
    out: Annotated[Path, typer.Option(help="A folder for the detector.")],
    method: Annotated[str, typer.Option(help="Any name that heat-ood methods lists.")] = "heat",
    prior: Annotated[list[str] | None, typer.Option(help="A prior of HEAT; give it several times for several.")] = None,
    paper: Annotated[str | None, typer.Option(help="The paper's settings: cifar10, cifar100 or imagenet.")] = None,
    beta: Annotated[float | None, typer.Option(help="Of the composition: 0 mean, inf maximum, -inf minimum.")] = None,
    no_residual: Annotated[bool, typer.Option("--no-residual", help="Compose the priors uncorrected.")] = False,
    lam: Annotated[float | None, typer.Option(help="A residual moves a score by at most 1 / 2 lam.")] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Passes over the samples for each residual; by default as many as it takes.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of the split, the residuals and all sampling.")] = None,
    contrast: Annotated[Path | None, typer.Option(help="Stored features of samples to be told from ID.")] = None,
    checkpoint: Annotated[Path | None, typer.Option(help="A folder where an interrupted fit goes on.")] = None,
    device: Annotated[str | None, typer.Option(help="Where to compute: cpu, cuda, …")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the detector that is there.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Fit a detector to stored features and save it.

    [dim]Examples:[/dim]

      heat-ood fit features/train --out detector

      heat-ood fit features/train --out plain --prior gmm --prior energy --no-residual
    """
    from ..errors import InputError
    from ..features import Features

    options: dict[str, Any] = {"prior": prior, "paper": paper, "beta": beta, "lam": lam, "epochs": epochs, "seed": seed}
    options |= {"contrast": contrast, "checkpoint": checkpoint, "device": device, "no_residual": no_residual or None}
    given = {name: value for name, value in options.items() if value is not None}
    detector = make(method, given)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        if not (out / "detector.json").is_file():
            raise InputError(f"{out} exists and holds no detector. Name another folder, so that nothing is lost.")
        if not overwrite:
            raise InputError(f"There is a detector in {out}. Name another folder, or pass --overwrite to replace it.")

    train = Features.open(features)
    started = time.perf_counter()
    if method == "heat":
        extra = {
            "contrast": None if contrast is None else Features.open(contrast),
            "checkpoint": checkpoint,
            "device": device,
        }
        detector.fit(train, **extra)
    else:
        detector.fit(train)
    seconds = time.perf_counter() - started
    detector.save(out)

    result = {
        "detector": str(out),
        "method": method,
        "samples": len(train),
        "seconds": round(seconds, 3),
        "reads": detector.reads,
    }
    outcomes, log = getattr(detector, "outcomes", {}), getattr(detector, "log", {})
    if json:
        emit(
            {
                **result,
                "settings": detector.settings,
                "outcomes": outcomes,
                "log": log,
                "fingerprint": detector.fingerprint,
            }
        )
        return
    show(
        facts(
            {
                **result,
                "reads": ", ".join(detector.reads),
                "seconds": f"{seconds:.1f}",
                "fingerprint": detector.fingerprint,
            }
        )
    )
    if outcomes:
        show(training_table(outcomes, log))


def make(method: str, given: Mapping[str, Any]) -> Energy:
    """The unfitted detector that the options describe."""
    from .. import HEAT, Residual, create

    if method != "heat":
        if given:
            wrong = ", ".join(f"--{name.replace('_', '-')}" for name in given)
            raise typer.BadParameter(f"{wrong} belong to heat, not to {method}.", param_hint="--method")
        return create(method)
    changes = {name: given[name] for name in ("beta", "seed") if name in given}
    if "prior" in given:
        changes["priors"] = tuple(given["prior"])
    trained = {name: given[name] for name in ("lam", "epochs") if name in given}
    if "no_residual" in given and trained:
        raise typer.BadParameter(
            f"there is no residual for --{' and --'.join(trained)} to change.", param_hint="--no-residual"
        )
    if "paper" not in given:
        residual = None if "no_residual" in given else Residual(**trained)
        return HEAT(residual=residual, **changes)

    preset = HEAT.paper(given["paper"], **changes)
    changed = None if "no_residual" in given else changed_residuals(preset.residual, trained, preset.priors)
    return HEAT.paper(given["paper"], **changes, residual=changed)


def changed_residuals(residual: Any, changes: dict[str, Any], priors: Any) -> dict[str, Residual]:
    """A preset's residuals, those of the chosen priors, with other settings."""
    from ..errors import InputError

    if unknown := [name for name in priors if name not in residual]:
        raise InputError(
            f"The paper has no residual for {', '.join(unknown)}. It has {', '.join(residual)}; leave out --paper "
            "for others."
        )
    return {name: replace(residual[name], **changes) for name in priors}


def training_table(outcomes: Mapping[str, str], log: Mapping[str, list[dict[str, float]]]) -> Any:
    """How each residual's training went."""
    rows = []
    for name, outcome in outcomes.items():
        best = min(log[name], key=lambda epoch: epoch["held_out_loss"], default=None)
        numbers = (
            ["–", "–"]
            if best is None
            else [f"{best['held_out_loss']:+.4f}", f"{best['energy_negative'] - best['energy_real']:.4f}"]
        )
        rows.append([name, outcome, str(len(log[name])), *numbers])
    return table(["residual of", "outcome", "epochs", "held-out loss", "gap"], rows)
