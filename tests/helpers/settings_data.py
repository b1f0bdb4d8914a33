"""Saved detectors of every method, with each setting replaced by values that cannot be meant, in a limited process.

    python tests/helpers/settings_data.py FOLDER TRIES METHOD …

saves each method to a folder, and opens it again with so many changes of each setting (0 is all); what neither loads
and scores nor is one of our errors is printed.
"""

from __future__ import annotations

import copy
import json
import random
import resource
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from heat_ood import Energy, HeatError, InputError
from heat_ood.energies import InputEnergy
from method_data import Case
from storage_data import VARIANTS, data, sign

MEMORY, SECONDS = 3 * 2**30, 10
OTHERS = ("has no layer", "with another model", "was fitted to", "for inputs of shape", "must be a matrix")
"""A file may say that it reads other samples, or another model, than those that it is given here."""
VALUES: list[Any] = [
    None,
    True,
    "x",
    "",
    -1,
    0,
    1,
    2,
    7,
    0.5,
    -0.5,
    1e-300,
    1e308,
    20_000,
    10**6,
    10**9,
    10**40,
    [],
    [1, 2],
    ["x"],
    [[[[1]]]],
    {"$float": "nan"},
    {"$float": "inf"},
    {"$float": "-inf"},
    {"$float": "x"},
    {"$list": [1, "x"]},
    {"$map": []},
    {"$map": [["gmm", 1]]},
    {"$energy": "msp", "settings": {}},
    {"$value": "Residual", "settings": {"hidden": 30_000}},
    {"$value": "Residual", "settings": {"depth": 10**6, "tied": True}},
    {},
]


def settings_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where settings and facts stand, those of the parts too."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if path and (path[-1] == "settings" or not str(key).startswith("$")):
                yield (*path, key)
            yield from settings_in(inner, (*path, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value[:12]):
            if number:
                yield (*path, number)
            yield from settings_in(inner, (*path, number))


def changed(manifest: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    new = copy.deepcopy(manifest)
    at: Any = new
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = copy.deepcopy(value)
    return new


class TooLong(BaseException):
    """A try that takes longer than it may."""


def alarm(number: int, frame: FrameType | None) -> None:
    raise TooLong


def scores(energy: Energy, case: Case | None) -> torch.Tensor:
    if case is None:
        return energy.score(data(20, seed=2))
    if isinstance(energy, InputEnergy):
        case.attach(energy)
    return energy.score(case.data(20, seed=2))


def tried(folder: Path, case: Case | None) -> str | None:
    """What is wrong with what happens; None where it is an error at load, or a finite score."""
    signal.alarm(SECONDS)
    try:
        energy = Energy.load(folder)
    except HeatError:
        return None
    except (Exception, TooLong) as error:
        return f"load: {type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
    signal.alarm(SECONDS)
    try:
        found = scores(energy, case)
        return None if torch.isfinite(found).all() else "no finite score"
    except (Exception, TooLong) as error:
        if isinstance(error, InputError) and any(text in str(error) for text in OTHERS):
            return None
        return f"score: {type(error).__name__}: {error}"
    finally:
        signal.alarm(0)


def attack(name: str, folder: Path, tries: int) -> tuple[int, list[str]]:
    """How many changes were tried, and what is wrong."""
    case = None if name in VARIANTS else Case(name)
    energy: Energy = VARIANTS[name]() if case is None else case.fitted()
    energy.save(folder)
    manifest = json.loads((folder / "detector.json").read_text())
    assert tried(folder, case) is None, name
    wrong, count, rng = [], 0, random.Random(name)
    paths: list[tuple[Any, ...]] = [("fitted",), ("fitted", "samples"), ("fitted", "marks"), ("calibration",)]
    for key in ("energy", "facts"):
        paths += [(key,), *settings_in(manifest[key], (key,))]
    for path in paths:
        for value in rng.sample(VALUES, tries or len(VALUES)):
            sign(folder, lambda m, path=path, value=value: m.update(changed(manifest, path, value)))
            count += 1
            if (what := tried(folder, case)) is not None:
                wrong.append(f"{name}: {'.'.join(map(str, path))} = {value!r}: {what}"[:300])
    return count, wrong


def main(place: Path, tries: int, names: list[str]) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGALRM, alarm)
    total = 0
    for name in names:
        started = time.perf_counter()
        count, wrong = attack(name, place / name.replace(" ", "-"), tries)
        total += count
        print(f"# {name}: {count} in {time.perf_counter() - started:.1f} s", file=sys.stderr)
        for line in wrong:
            print(line, flush=True)
    print(f"tried {total}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
