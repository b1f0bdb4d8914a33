"""``--engine ray``: a command's shards on many machines, each done as ``--shard`` does it in one process."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from ._model_options import ModelOptions
from ._output import note
from ._registry import discover

if TYPE_CHECKING:
    from ..energies import Energy
    from ..features import Extractor
    from ..scale import Engine

__all__ = ["PANEL", "EngineOptions", "with_engine"]

PANEL = "On many machines"
RAY = "ray"


@dataclass(frozen=True)
class EngineOptions:
    """Where the shards of a command are done."""

    engine: Annotated[
        str | None, typer.Option(help="ray: shards on the workers of a Ray cluster.", rich_help_panel=PANEL)
    ] = None
    address: Annotated[
        str | None,
        typer.Option(
            help="Of the cluster, host:port or auto. Default: Ray is started on this machine.", rich_help_panel=PANEL
        ),
    ] = None
    gpus_per_worker: Annotated[
        float | None, typer.Option(min=0, help="GPUs of each worker, or a share of one.", rich_help_panel=PANEL)
    ] = None
    time_limit: Annotated[
        float | None,
        typer.Option(
            help="Seconds that a shard may take before it is tried elsewhere. Default: ten times the median, at least "
            "60.",
            rich_help_panel=PANEL,
        ),
    ] = None

    def made(self, workers: int) -> Engine | None:
        """The engine that the options describe; None where the work is done here.

        Args:
            workers: of the cluster; none is one for each of its CPUs.
        """
        from ..scale import Engine

        if self.engine is None:
            given = {name: value for name, value in vars(self).items() if value is not None}
            if given:
                raise typer.BadParameter(
                    "it is for --engine ray.", param_hint=f"--{next(iter(given)).replace('_', '-')}"
                )
            return None
        if self.engine != RAY:
            raise typer.BadParameter(f"there is {RAY}, and no {self.engine}.", param_hint="--engine")
        count = workers or (1 if self.address is None else None)
        return Engine(self.address, count, gpus_per_worker=self.gpus_per_worker or 0, time_limit=self.time_limit)


Shards = Annotated[
    int | None,
    typer.Option(min=1, help="So many parts, with --engine; default four a worker.", rich_help_panel=PANEL),
]


def options() -> list[inspect.Parameter]:
    """The fields of :class:`EngineOptions` as parameters of a command."""
    hints = get_type_hints(EngineOptions, include_extras=True)
    return [
        inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=hints[f.name])
        for f in fields(EngineOptions)
    ]


def with_engine(close: Callable[..., None]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command with ``--shard`` and ``--out`` the options of an engine, which then does all its shards.

    Args:
        close: the command that closes what they made.
    """

    def add(command: Callable[..., None]) -> Callable[..., None]:
        signature, more = inspect.signature(command), options()
        more.append(inspect.Parameter("shards", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Shards))

        @functools.wraps(command)
        def wrapped(**values: Any) -> None:
            given = EngineOptions(**{f.name: values.pop(f.name) for f in fields(EngineOptions)})
            count = values.pop("shards")
            engine = given.made(values["workers"])
            if engine is None:
                if count is not None:
                    raise typer.BadParameter("it is for --engine ray; one part is --shard 0/64.", param_hint="--shards")
                command(**values)
            else:
                on_engine(command.__name__, values, engine, count, close)

        wrapped.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *more])  # type: ignore[attr-defined]
        return wrapped

    return add


def on_engine(name: str, values: dict[str, Any], engine: Engine, count: int | None, close: Callable[..., None]) -> None:
    """Do all shards of a command, say what became of them, and close what they made."""
    from ..scale import unfinished

    for option in ("shard", "overwrite", "fail_on_ood"):
        if values.get(option):
            raise typer.BadParameter("it is for one process; leave it out with --engine.", param_hint=option)
    out = values.get("out") or values.get("csv_file")
    if out is None:
        raise typer.BadParameter("name a folder that all machines see.", param_hint="--out")
    count = count or shards_in(out) or 4 * (engine.workers or 16)
    shards = unfinished(out, count) if "images" in values else list(range(count))
    prepare = functools.partial(prepared, name, {**values, "json": True}, count, os.getcwd())
    outcome = engine.run(prepare, shards, title=name)
    note(str(outcome))
    outcome.check()
    close(folder=out, verify=False, json=values["json"])


def shards_in(out: Path) -> int | None:
    """How many parts a run that was interrupted had."""
    from ..features import FEATURES_FILE, read_manifest, shards_in

    for name in shards_in(out).values():
        if (out / name / FEATURES_FILE).exists():
            place = read_manifest(out / name).shard
            return None if place is None else place.of
    return None


# On a worker


@dataclass(frozen=True)
class Held(ModelOptions):
    """Options whose model is loaded once by a process, and held."""

    def extractor(self, energy: Energy | None = None) -> Extractor:
        wanted = None if energy is None else energy.fingerprint
        key = (self, wanted)
        if key not in HELD:
            HELD[key] = super().extractor(energy)
        return HELD[key]


HELD: dict[Any, Extractor] = {}


def prepared(name: str, values: dict[str, Any], count: int, folder: str) -> Callable[[int], dict[str, Any]]:
    """What each worker does when it starts: go to the folder where the command was called, as paths are told there."""
    from ..errors import InputError

    try:
        os.chdir(folder)
    except OSError as error:
        raise InputError(f"{folder} is not on this machine ({error}). Call the command in a shared folder.") from error
    names = {f.name for f in fields(ModelOptions)}
    model = Held(**{key: value for key, value in values.items() if key in names} | {"workers": 0})
    own = {key: value for key, value in values.items() if key not in names and key != "shard"}
    return functools.partial(one, discover()[name].run, own, model, count)


def one(run: Callable[..., None], values: dict[str, Any], model: Held, count: int, number: int) -> dict[str, Any]:
    """Do a shard as the command does it with ``--shard``."""
    from ..errors import InputError
    from ..features import FEATURES_FILE, read_manifest, shard_name

    command = inspect.unwrap(run)
    try:
        command(**values, model_options=model, shard=f"{number}/{count}")
    except typer.BadParameter as error:
        raise InputError(f"{error.param_hint or 'an option'}: {error.message}") from error
    made = Path(values.get("out") or values["csv_file"]) / shard_name(number)
    return {"samples": read_manifest(made).count} if (made / FEATURES_FILE).exists() else {}
