"""``heat-ood fit``: features, or images and a model, to a saved detector."""

from __future__ import annotations

import inspect
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._accuracy import accuracy_on
from .._engine import PANEL, EngineOptions
from .._model_options import ModelOptions, layer_names, with_model_options
from .._options import Json, Members
from .._output import emit, facts, note, show, training_table
from .._registry import command, defaults_of
from .._source import Source

if TYPE_CHECKING:
    from ...energies import Energy
    from ...errors import Argument
    from ...residual import Residual

__all__ = ["fit"]

OWN = {"priors": "--prior", "beta": "--beta", "seed": "--seed", "residual": "--no-residual, --lam, --odds or --epochs"}
"""Settings of HEAT that have an option of their own."""


def library() -> dict[str, Any]:
    """What the library takes for options that are left out."""
    from ...heat import HEAT
    from ...residual import Residual

    return defaults_of(HEAT) | defaults_of(Residual) | {"prior": "by what the features have"}


def as_setting(argument: Argument, values: Mapping[str, Any]) -> str | None:
    """``--set k=5``, where the method has such a setting."""
    from ...energies import find
    from ...errors import InputError

    try:
        method = find(values["method"])
    except InputError:
        return None
    if argument.name not in inspect.signature(method.make).parameters:
        return None
    return f"--set {argument.name}={'VALUE' if argument.value is ... else text_of(argument.value)}"


@command(
    order=50,
    interrupted="with --checkpoint the same command goes on, without it nothing was written",
    defaults=library,
    arguments={"priors": "prior", "residual": "no_residual"},
    otherwise=as_setting,
)
@with_model_options
def fit(
    model_options: ModelOptions,
    features: Annotated[
        Path,
        typer.Argument(
            help="ID features (or images, with --model), best of the samples that the backbone was trained on."
        ),
    ],
    out: Annotated[Path, typer.Option(help="A folder for the detector.")],
    method: Annotated[str, typer.Option(help="Any name that heat-ood methods lists.")] = "heat",
    set: Annotated[
        list[str] | None,
        typer.Option(
            help="KEY=VALUE, a setting of the method; give it several times for several. A value is a number, true, "
            "false, none, a list with commas between, or text. Of heat: weights, holdout, standardise.",
        ),
    ] = None,
    prior: Annotated[list[str] | None, typer.Option(help="A prior of HEAT; give it several times for several.")] = None,
    paper: Annotated[str | None, typer.Option(help="The paper's settings: cifar10, cifar100 or imagenet.")] = None,
    beta: Annotated[float | None, typer.Option(help="Of the composition: 0 mean, inf maximum, -inf minimum.")] = None,
    no_residual: Annotated[bool, typer.Option("--no-residual", help="Compose the priors uncorrected.")] = False,
    lam: Annotated[float | None, typer.Option(help="A residual moves a score by at most 1 / 2 lam.")] = None,
    odds: Annotated[
        float | None, typer.Option(help="How many times as likely a sample is to be real as to be a negative.")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Passes over the samples for each residual; by default as many as it takes.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of the split, the residuals and all sampling.")] = None,
    contrast: Annotated[
        Path | None, typer.Option(help="Features of samples to be told from ID, as heat-ood contrast stores.")
    ] = None,
    checkpoint: Annotated[Path | None, typer.Option(help="A folder where an interrupted fit goes on.")] = None,
    update: Annotated[
        Path | None,
        typer.Option(help="A store of earlier shards, which these are added to; its moments are read, and a sample."),
    ] = None,
    member: Members = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the detector that is there.")] = False,
    engine: Annotated[
        str | None, typer.Option(help="ray: workers of a Ray cluster sum the moments of shards.", rich_help_panel=PANEL)
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="Of the cluster. Default: Ray is started here.", rich_help_panel=PANEL)
    ] = None,
    gpus_per_worker: Annotated[
        float | None,
        typer.Option(min=0, help="GPUs that each worker takes; sums use none.", rich_help_panel=PANEL),
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(min=0, help="Seconds for a shard, before it is tried elsewhere.", rich_help_panel=PANEL),
    ] = None,
    json: Json = False,
) -> None:
    """Fit a detector to stored features and save it; odin, gram and ensemble read images, with --model.

    [dim]Examples:[/dim]

      heat-ood fit features/train --out detector

      heat-ood fit features/train --out plain --prior gmm --prior energy --no-residual

      heat-ood fit train/ --out gram --method gram --model timm:resnet34 --pretrained --set powers=5
    """
    from ...energies import DETECTOR_FILE, ours
    from ...errors import InputError
    from ...features import Features, joined
    from ...scale import fit as on_workers

    cluster = EngineOptions(engine, address, gpus_per_worker, time_limit).made(model_options.workers)
    options: dict[str, Any] = {"prior": prior, "paper": paper, "beta": beta, "lam": lam, "odds": odds}
    options |= {"epochs": epochs, "seed": seed}
    device = (
        model_options.device if method == "heat" or model_options.model is None else None
    )  # else it is the model's alone
    options |= {"contrast": contrast, "checkpoint": checkpoint, "device": device, "no_residual": no_residual or None}
    given = {name: value for name, value in options.items() if value is not None}
    settings = typed(method, set or ())
    if method == "gram" and model_options.layers is not None:
        settings.setdefault("layers", layer_names(model_options.layers))
    detector = make(method, given, settings)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        if not (out / DETECTOR_FILE).is_file() and not (out.is_dir() and ours(out)):
            raise InputError(f"{out} exists and holds no detector. Name another folder, so that nothing is lost.")
        if not overwrite and (out / DETECTOR_FILE).is_file():
            raise InputError(f"There is a detector in {out}. Name another folder, or pass --overwrite to replace it.")

    with Source(model_options, detector, member, labels=True) as source:
        train = source.open(features)
        extra: dict[str, Any] = {}
        if method == "heat":
            negatives = None if contrast is None else source.open(contrast).data
            extra = {"contrast": negatives, "checkpoint": checkpoint, "device": device}
        right = accuracy_on(train.data, "these ID samples")
        started = time.perf_counter()
        data = train.data if update is None else joined([Features.open(update), train.data])
        if cluster is None:
            detector.fit(data, **extra)
        else:
            note(str(on_workers(detector, data, cluster, **extra)))
        seconds = time.perf_counter() - started
    detector.save(out)

    result: dict[str, Any] = {
        "detector": str(out),
        "method": method,
        "samples": train.size if update is None else len(data),
        "seconds": round(seconds, 3),
        "reads": detector.reads,
        **({} if right is None else right._asdict()),
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
    result.pop("confidence", None)
    show(
        facts(
            {
                **result,
                **({} if right is None else {"accuracy": right}),
                "reads": ", ".join(detector.reads),
                "seconds": f"{seconds:.1f}",
                "fingerprint": detector.fingerprint,
            }
        )
    )
    if outcomes:
        show(training_table(outcomes, log))


def typed(method: str, given: Sequence[str]) -> dict[str, Any]:
    """The settings of a method as the command line gives them, ``powers=5``, with their values."""
    from ...energies import find
    from ...errors import InputError

    parameters = inspect.signature(find(method).make).parameters
    found: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{text!r} is not KEY=VALUE.", param_hint="--set")
        default = parameters[name].default if name in parameters else None
        read = str if isinstance(default, str) else literal
        parts = tuple(read(part.strip()) for part in value.split(",") if part.strip())
        found[name] = new = parts if "," in value else read(value)
        if isinstance(default, bool) and not isinstance(new, bool):
            raise InputError(f"{name} of {method} is true or false, not {value!r}.")
        number = isinstance(new, int | float) and not isinstance(new, bool)
        if new is None and name in parameters:
            number = "None" in str(parameters[name].annotation)
        if isinstance(default, int | float) and not isinstance(default, bool) and not number:
            raise InputError(f"{name} of {method} is a number, not {value!r}.")
    return found


def literal(text: str) -> Any:
    """A number, true, false, none, or text."""
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def text_of(value: Any) -> str:
    """How :func:`typed` reads a value."""
    if isinstance(value, list | tuple):
        return ",".join(map(text_of, value))
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def make(method: str, given: Mapping[str, Any], settings: Mapping[str, Any]) -> Energy:
    """The unfitted detector that the options describe."""
    from ...energies import create
    from ...heat import AGAINST_CONTRAST, HEAT
    from ...residual import Residual

    create(method, **settings)
    if method != "heat":
        if given:
            wrong = ", ".join(f"--{name.replace('_', '-')}" for name in given)
            raise typer.BadParameter(f"{wrong} belong to heat, not to {method}.", param_hint="--method")
        return create(method, **settings)
    for name in settings:
        if name in OWN:
            raise typer.BadParameter(f"{name} of heat has an option of its own: {OWN[name]}.", param_hint="--set")
    changes = {**settings, **{name: given[name] for name in ("beta", "seed") if name in given}}
    if "prior" in given:
        changes["priors"] = tuple(given["prior"])
    trained = {name: given[name] for name in ("lam", "odds", "epochs") if name in given}
    if "no_residual" in given and trained:
        raise typer.BadParameter(
            f"there is no residual for --{' and --'.join(trained)} to change.", param_hint="--no-residual"
        )
    if "paper" not in given:
        if "no_residual" in given:
            changes["residual"] = None
        elif trained:
            changes["residual"] = replace(AGAINST_CONTRAST if "contrast" in given else Residual(), **trained)
        return HEAT(**changes)

    preset = HEAT.paper(given["paper"], **changes)
    changed = None if "no_residual" in given else changed_residuals(preset.residual, trained, preset.priors)
    return HEAT.paper(given["paper"], **changes, residual=changed)


def changed_residuals(residual: Any, changes: dict[str, Any], priors: Any) -> dict[str, Residual]:
    """A preset's residuals, those of the chosen priors, with other settings."""
    from ...errors import InputError

    if unknown := [name for name in priors if name not in residual]:
        raise InputError(
            f"The paper has no residual for {', '.join(unknown)}. It has {', '.join(residual)}; leave out --paper "
            "for others."
        )
    return {name: replace(residual[name], **changes) for name in priors}
