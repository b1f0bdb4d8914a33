"""The ways by which a file reaches the library: calls and commands, each with what is promised of it."""

from __future__ import annotations

import inspect
import io
import json
import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .targets import MODEL, SETTINGS, Target, method_data

__all__ = ["ROUTES", "CommandError", "Route", "UnclearError"]

Numbers = list[float]
"""What a route answers: scores and p-values, or whatever must stay as it was."""


class CommandError(Exception):
    """A command ended with 1 or 2 and said why in a line."""


class UnclearError(Exception):
    """An answer or an error that is not as promised, though nothing was raised."""


@dataclass(frozen=True)
class Route:
    """One way in.

    Args:
        kind: the format that it reads.
        name: for the table.
        run: from the folder that was attacked, the target that it was, and the folder of tools to numbers.
        sealed: whether damage is promised to be an error or to change nothing; else it is promised to be an error or
            to be answered.
        share: of all tries, beside the others'.
        every: which of the targets: all, or every so many; commands take long and load as calls do.
    """

    kind: str
    name: str
    run: Callable[[Path, Target, Path], Numbers]
    sealed: bool = True
    share: int = 1
    every: int = 1


def answered(*tensors: Any) -> Numbers:
    """Scores and p-values as they are compared; they must be finite."""
    numbers = [float(x) for tensor in tensors for x in torch.as_tensor(tensor).flatten().tolist()]
    if not all(map(math.isfinite, numbers)):
        raise UnclearError("a score or p-value is not finite")
    return numbers


# Commands


def command(*arguments: object) -> str:
    """Run a command as the console script does, in this process; its standard output, or an error."""
    from heat_ood.cli import main

    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace", write_through=True)
    before = sys.argv, sys.stdout, sys.stderr
    sys.argv, sys.stdout, sys.stderr = ["heat-ood", *map(str, arguments)], out, err
    code: Any = 0
    try:
        main()
    except SystemExit as error:
        code = error.code
    finally:
        sys.argv, sys.stdout, sys.stderr = before
    said, told = (stream.buffer.getvalue().decode() for stream in (out, err))  # type: ignore[attr-defined]
    if controls := {c for c in said + told if (ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160}:
        raise UnclearError(f"control characters are sent to the terminal: {sorted(controls)!r}")
    if code in (0, 3, None):
        return said
    lines = [line for line in told.splitlines() if line.startswith("error: ")]
    if code not in (1, 2) or "Traceback" in told or (code == 1 and len(lines) != 1):
        raise UnclearError(f"it exits with {code} and says: {told[-300:]!r}")
    if code == 1 and told.rstrip("\n").splitlines()[-1] != lines[0]:
        raise UnclearError(f"the error is more than a line: {told[-300:]!r}")
    raise CommandError(told[-300:])


def numbers_in(text: str) -> Numbers:
    """All numbers of a JSON text, in order."""

    def visit(value: Any) -> Iterable[float]:
        if isinstance(value, dict):
            for item in value.values():
                yield from visit(item)
        elif isinstance(value, list):
            for item in value:
                yield from visit(item)
        elif isinstance(value, int | float):
            yield float(value)

    def refuse(constant: str) -> float:
        raise UnclearError(f"the JSON holds {constant}")

    return list(visit(json.loads(text, parse_constant=refuse)))


# Detectors


def score(folder: Path, target: Target, tools: Path) -> Numbers:
    from heat_ood import Energy

    energy = Energy.load(folder)
    repr(energy)
    if target.name.startswith("+"):
        from storage_data import data

        test: Any = data(16, seed=2)
    else:
        case = method_data.Case(target.name)
        energy, test = case.attach(energy), case.data(16, seed=2)
    return answered(energy.score(test), energy.p_value(test))


def score_again(folder: Path, target: Target, tools: Path) -> Numbers:
    """Saved anew and loaded once more: what loads, can be kept."""
    from heat_ood import Energy

    Energy.load(folder).save(folder.with_name("again"))
    return score(folder.with_name("again"), target, tools)


def cli_info(folder: Path, target: Target, tools: Path) -> Numbers:
    command("info", folder)
    return []


def cli_info_json(folder: Path, target: Target, tools: Path) -> Numbers:
    command("info", folder, "--json")
    return []


def of_features(target: Target) -> bool:
    """Whether a method scores the features that the tools hold."""
    return target.kind != "detector" or not (target.name.startswith("+") or target.name in method_data.BEYOND)


def cli_score(folder: Path, target: Target, tools: Path) -> Numbers:
    if not of_features(target):
        return cli_info(folder, target, tools)
    return numbers_in(command("score", folder, tools / "test", "--json"))


def cli_evaluate(folder: Path, target: Target, tools: Path) -> Numbers:
    if not of_features(target):
        return cli_info(folder, target, tools)
    return numbers_in(command("evaluate", folder, "--id", tools / "test", "--ood", f"x={tools / 'ood'}", "--json"))


# Stores


def opened(folder: Path, verify: bool) -> Any:
    from heat_ood import Features

    known = verify and "verify" in inspect.signature(Features.open).parameters
    return Features.open(folder, **({"verify": True} if known else {}))


def store_numbers(features: Any) -> Numbers:
    """All that is stored, and a fit to it."""
    from heat_ood import create

    head = [] if features.head is None else list(features.head)
    labels = [] if features.labels is None else [features.labels]
    kept = [x for tensor in (*features.columns.values(), *head, *labels) for x in tensor.double().flatten().tolist()]
    return kept + answered(create("gmm").fit(features).score(features))


def store_verified(folder: Path, target: Target, tools: Path) -> Numbers:
    return store_numbers(opened(folder, verify=True))


def store_opened(folder: Path, target: Target, tools: Path) -> Numbers:
    return store_numbers(opened(folder, verify=False))


def store_cli_verify(folder: Path, target: Target, tools: Path) -> Numbers:
    """What ``info --verify`` lets pass is what was stored."""
    from heat_ood.cli._commands.info import info

    command("info", folder, *(["--verify"] if "verify" in inspect.signature(info).parameters else []))
    return store_numbers(opened(folder, verify=False))


def store_cli_score(folder: Path, target: Target, tools: Path) -> Numbers:
    detector = tools / ("of-extracted" if target.name == "extracted" else "gmm")
    return numbers_in(command("score", detector, folder, "--json"))


def store_cli_fit(folder: Path, target: Target, tools: Path) -> Numbers:
    command("fit", folder, "--out", folder.with_name("fitted"), "--method", "vim")
    return []


# Checkpoints, guards


def resumed(folder: Path, target: Target, tools: Path) -> Numbers:
    from heat_ood import HEAT

    data = method_data.samples(240, seed=int(target.name))
    heat = HEAT(**SETTINGS).fit(data, checkpoint=folder, progress=False)
    return answered(heat.score(method_data.samples(16, seed=2)))


def guarded(folder: Path, target: Target, tools: Path) -> Numbers:
    import heat_ood

    images = torch.rand(5, 3, 8, 8, generator=torch.Generator().manual_seed(4))
    return answered(*heat_ood.load(folder)(images))


def cli_check(folder: Path, target: Target, tools: Path) -> Numbers:
    picture = tools.parent / "pictures" / "held-out" / "class0" / "0.png"
    return numbers_in(command("check", folder, picture, "--json"))


# Results, suites


def result_file(folder: Path, target: Target) -> Path:
    return folder / ("results.json" if target.kind == "results" else "evaluation.json")


def read_results(folder: Path, target: Target, tools: Path) -> Numbers:
    from heat_ood.results import Results, read_results

    file = result_file(folder, target)
    found = read_results(file) if target.kind == "evaluation" else Results.load(file)
    for suffix in ("json", "md", "csv"):
        found.save(folder.with_name(f"copy.{suffix}"))
    return []


def cli_report(folder: Path, target: Target, tools: Path) -> Numbers:
    command("report", result_file(folder, target), "--out", folder.with_name("report.html"))
    return []


def read_suite(folder: Path, target: Target, tools: Path) -> Numbers:
    from heat_ood.benchmarks import suite

    repr(suite(folder / "suite.toml"))
    return []


def cli_benchmark(folder: Path, target: Target, tools: Path) -> Numbers:
    """With residuals of one epoch: HEAT's own row is always run."""
    from quick import hurry

    hurry()
    place = ["--cache", folder.with_name("cache"), "--out", folder.with_name("out")]
    command("benchmark", folder / "suite.toml", "--method", "msp", "--seed", 0, *place)
    return []


# Images


def image_path(folder: Path, target: Target) -> Path:
    return folder / "images.npz" if target.kind == "npz" else folder


def open_images(folder: Path, target: Target, tools: Path) -> Numbers:
    from heat_ood.images import Preprocessing
    from heat_ood.images import open_images as library

    images = library(image_path(folder, target))
    images.preprocessing = Preprocessing(size=(8, 8))
    for i in range(min(len(images), 64)):
        item = images[i]
        answered((item[0] if isinstance(item, tuple) else item).mean())
    return []


def cli_score_images(folder: Path, target: Target, tools: Path) -> Numbers:
    path, more = image_path(folder, target), ["--model", MODEL, "--size", 8, "--json"]
    numbers_in(command("score", tools / "of-images", path, *more))
    return []


def cli_skip_images(folder: Path, target: Target, tools: Path) -> Numbers:
    path, more = image_path(folder, target), ["--model", MODEL, "--size", 8, "--skip-unreadable"]
    command("score", tools / "of-images", path, *more)
    return []


def cli_check_images(folder: Path, target: Target, tools: Path) -> Numbers:
    numbers_in(command("check", tools.parent / "guard" / "heat", folder, "--json"))
    return []


ROUTES = (
    Route("detector", "Energy.load, score", score, share=36),
    Route("detector", "load, save, load, score", score_again, share=5),
    Route("detector", "heat-ood info", cli_info, share=2, every=4),
    Route("detector", "heat-ood info --json", cli_info_json, share=1, every=5),
    Route("detector", "heat-ood score", cli_score, share=2, every=4),
    Route("detector", "heat-ood evaluate", cli_evaluate, share=1, every=6),
    Route("store", "Features.open(verify=True), fit", store_verified, share=12),
    Route("store", "Features.open, fit", store_opened, sealed=False, share=6),
    Route("store", "heat-ood info --verify", store_cli_verify, share=2),
    Route("store", "heat-ood score", store_cli_score, sealed=False),
    Route("store", "heat-ood fit", store_cli_fit, sealed=False),
    Route("checkpoint", "HEAT.fit(checkpoint=…), score", resumed, share=4),
    Route("guard", "heat_ood.load, call", guarded, share=5),
    Route("guard", "heat-ood info", cli_info),
    Route("guard", "heat-ood check", cli_check),
    Route("results", "Results.load, save", read_results, sealed=False, share=4),
    Route("results", "heat-ood report", cli_report, sealed=False),
    Route("evaluation", "read_results, save", read_results, sealed=False, share=5),
    Route("evaluation", "heat-ood report", cli_report, sealed=False),
    Route("suite", "benchmarks.suite", read_suite, sealed=False, share=8),
    Route("suite", "heat-ood benchmark", cli_benchmark, sealed=False),
    Route("images", "open_images, read", open_images, sealed=False, share=8),
    Route("images", "heat-ood score", cli_score_images, sealed=False),
    Route("images", "heat-ood score --skip-unreadable", cli_skip_images, sealed=False),
    Route("images", "heat-ood check", cli_check_images, sealed=False),
    Route("npz", "open_images, read", open_images, sealed=False, share=8),
    Route("npz", "heat-ood score", cli_score_images, sealed=False),
)
