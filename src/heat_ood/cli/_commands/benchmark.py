"""``heat-ood benchmark``: the paper's experiments, on its data or on one's own."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._output import emit, facts, note, show, table
from .._registry import command

if TYPE_CHECKING:
    from ...results import Mean, Results

__all__ = ["benchmark"]

DATA = "Data and model"


@command(order=110, interrupted="run the same command again to go on", arguments={"root": "data"})
def benchmark(
    suite: Annotated[str | None, typer.Argument(help="A suite, or a .toml file of your own; none lists them.")] = None,
    experiment: Annotated[
        str,
        typer.Option(
            help="main, correction, residual, composition, lambda, beta, low-data, cost, qualitative; see the docs."
        ),
    ] = "main",
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="Run this method; give it several times for several. By default all but heat-paper "
            "(HEAT.paper(), which takes hours) and 'HEAT, no contrast'."
        ),
    ] = None,
    seed: Annotated[
        list[int] | None, typer.Option(help="Run with this seed; give it several times. Default: 0, 1, 2.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="A folder for results and report. Default: results/SUITE/EXPERIMENT.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Where the data sets lie. Default: as the suite says.", rich_help_panel=DATA)
    ] = None,
    features: Annotated[
        Path | None,
        typer.Option(help="A folder of stored features, one a set, instead of images.", rich_help_panel=DATA),
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Where features and results are kept.", rich_help_panel=DATA)
    ] = None,
    variant: Annotated[
        str | None, typer.Option(help="A variant of the suite with another backbone.", rich_help_panel=DATA)
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(help="Your own weights of the backbone, .safetensors.", rich_help_panel=DATA)
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=10, help="At most so many images of each set.", rich_help_panel=DATA)
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Images in one pass. Default: as the suite says.", rich_help_panel=DATA)
    ] = None,
    workers: Annotated[int, typer.Option(min=0, help="Processes that decode images.", rich_help_panel=DATA)] = 0,
    device: Annotated[str | None, typer.Option(help="Where the backbone runs.", rich_help_panel=DATA)] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Run an experiment of a suite: tables, JSON and an HTML report.

    Interrupted, the same command goes on where it was.

    [dim]Examples:[/dim]

      heat-ood benchmark demo

      heat-ood benchmark cifar10 --data data --method gmm --method energy --method heat

      heat-ood benchmark my-suite.toml --experiment lambda
    """
    from ...benchmarks import CACHE, run_benchmark
    from ...benchmarks import suite as suite_of

    if suite is None:
        listing(json)
        return
    chosen = suite_of(suite)
    results = run_benchmark(
        chosen,
        experiment,
        methods=method,
        seeds=(0, 1, 2) if seed is None else tuple(seed),
        root=data,
        features=features,
        cache=CACHE if cache is None else cache,
        variant=variant,
        weights=weights,
        device=device,
        batch_size=batch_size,
        workers=workers,
        limit=limit,
        say=note,
        report=progress,
    )
    folder = out or Path("results") / chosen.name / experiment
    files = write(results, folder)
    if json:
        emit(results.to_dict())
        return
    overview(results)
    show(facts({"results": ", ".join(str(file) for file in files)}))


def progress(done: int, total: int, what: str, seconds: float | None) -> None:
    """A line for each job that is done."""
    took = "was there" if seconds is None else f"{seconds:.1f} s"
    note(f"[{done}/{total}] {what}: {took}")


def write(results: Results, folder: Path) -> list[Path]:
    """Everything that there is to keep of a run."""
    from ...report import write_report

    folder.mkdir(parents=True, exist_ok=True)
    files = [results.save(folder / f"results{suffix}") for suffix in (".json", ".md", ".csv", ".tex")]
    report = folder / "report.html"
    write_report([results], report)
    return [*files, report]


def overview(results: Results) -> None:
    """The rows with their averages, the best first."""
    if results.costs:
        rows = [[c.name, f"{c.milliseconds:.3f}", f"{100 * c.share:.2f} %"] for c in results.costs]
        show(table(["", "ms a sample", "share of HEAT with its backbone"], rows))
    if not results.entries:
        return
    rows = []
    for entry in results.ranked("auroc"):
        fpr, auc = (results.mean(entry, metric) for metric in ("fpr_at_95_id", "auroc"))
        rows.append([entry.name, *map(cell, (fpr, auc))])
    show(table(["method", "fpr_at_95_id ↓", "AUROC ↑"], rows))
    for gone in results.missing:
        note(f"missing: {gone.name}; get {gone.get or 'it'}, put it at {gone.put}")


def cell(value: Mean) -> str:
    """A mean in percent, with its spread over seeds where there is one."""
    spread = "" if math.isnan(value.spread) else f" ± {100 * value.spread:.2f}"
    return f"{100 * value.mean:.2f}{spread}"


def listing(json: bool) -> None:
    """All suites, with what they need."""
    from ...benchmarks import suites

    found: dict[str, Any] = {
        name: {
            "title": s.title,
            "id": s.id.title,
            "backbone": s.backbone.title,
            "groups": dict(s.groups),
            "apart": list(s.apart),
        }
        for name, s in suites().items()
    }
    if json:
        emit(found)
        return
    rows = []
    for name, s in found.items():
        sets = [f"{g}{', apart' if g in s['apart'] else ''}: {', '.join(names)}" for g, names in s["groups"].items()]
        rows.append([name, s["id"], s["backbone"], " · ".join(sets)])
    show(table(["suite", "ID", "backbone", "OOD"], rows))
