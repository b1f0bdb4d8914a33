"""``heat-ood calibrate``: p-values for a saved detector."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .._model_options import ModelOptions, with_model_options
from .._options import Detector, Json, Members
from .._output import emit, facts, show
from .._registry import command
from .._source import Source

__all__ = ["calibrate"]


@command(order=60, interrupted="the detector is as it was")
@with_model_options
def calibrate(
    model_options: ModelOptions,
    detector: Detector,
    features: Annotated[
        Path,
        typer.Argument(
            help="Held-out ID features (or images, with --model) that the backbone was [bold]not[/bold] trained on."
        ),
    ],
    per_class: Annotated[
        bool, typer.Option("--per-class", help="Let the false-alarm rate hold for each predicted class.")
    ] = False,
    member: Members = None,
    json: Json = False,
) -> None:
    """Give a detector p-values and decisions; it is saved in place.

    [dim]Example:[/dim]

      heat-ood calibrate detector features/held-out
    """
    from ...energies import Energy

    energy = Energy.load(detector)
    with Source(model_options, energy, member) as source:
        energy.calibrate(source.open(features).data, per_class=per_class)
    energy.save(detector)
    assert energy.calibration is not None
    smallest = 1 / (energy.calibration.smallest + 1)
    result = {
        "detector": str(detector),
        "calibration": len(energy.calibration.scores),
        "per_class": per_class,
        "smallest_fpr": smallest,
    }
    if json:
        emit(result)
    else:
        show(facts({**result, "smallest_fpr": f"{smallest:.4g}"}))
