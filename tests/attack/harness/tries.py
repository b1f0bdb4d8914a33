"""One try: a number says which file is attacked, how, and by which route; the outcome says what came of it."""

from __future__ import annotations

import json
import math
import os
import random
import resource
import shutil
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from .damage import copied, damage_bytes, damage_folder, files_of
from .documents import edit_json, edit_toml
from .routes import ROUTES, CommandError, Numbers, Route, UnclearError
from .seals import SEALS
from .targets import Target, found
from .tensors import edit_npy, edit_npz, edit_safetensors

__all__ = ["BAD", "MEMORY", "SECONDS", "Attack", "Outcome", "Plan", "classify", "close"]

SECONDS, MEMORY = 10, 2 * 2**30
"""What a try may take."""
TOLERANCE = 1e-6
"""Of one part in the score: what rounding does."""
BAD = ("different", "raw", "code ran", "hang", "memory", "crash")
"""Outcomes that break a promise; the others are ``same``, ``refused`` and, where that is all that is promised,
``answered``."""
LOADED = ("heat_ood.cli", "heat_ood.benchmarks", "heat_ood.report", "heat_ood.guarding", "torch._dynamo", "PIL.Image")
"""What routes import when they are first taken: before the processes are forked, so that it is loaded once."""
EDITORS: dict[str, Callable[[random.Random, bytes], tuple[bytes, str]]] = {
    ".safetensors": edit_safetensors,
    ".npy": edit_npy,
    ".npz": edit_npz,
}


@dataclass(frozen=True)
class Plan:
    """What a try does.

    Args:
        number: says all the rest, with the seed.
        route: the number of the route.
        forged: checksums are computed anew after the change.
    """

    number: int
    route: int
    forged: bool

    @property
    def way(self) -> Route:
        return ROUTES[self.route]


@dataclass(frozen=True)
class Outcome:
    """What came of a try."""

    number: int
    kind: str
    route: str
    forged: bool
    sealed: bool
    target: str
    change: str
    outcome: str
    note: str = ""
    seconds: float = 0.0
    megabytes: float = 0.0

    def to_json(self) -> str:
        return json.dumps(asdict(self))


@cache
def ways() -> tuple[tuple[int, bool], ...]:
    """All routes in their shares, forged and not, well mixed."""
    some = [
        (i, forged)
        for i, route in enumerate(ROUTES)
        for forged in ((False, True) if route.kind in SEALS else (False,))
        for _ in range(route.share)
    ]
    random.Random(0).shuffle(some)
    return tuple(some)


def plan(number: int) -> Plan:
    return Plan(number, *ways()[number % len(ways())])


def close(a: Numbers, b: Numbers) -> bool:
    return len(a) == len(b) and all(abs(x - y) <= TOLERANCE * (1 + abs(y)) for x, y in zip(a, b, strict=True))


class Attack:
    """All tries of one seed on what :func:`harness.targets.build` made.

    Args:
        root: where that lies.
        seed: of all tries.
        scratch: a folder of its own, for what is attacked.
    """

    def __init__(self, root: Path, seed: int, scratch: Path) -> None:
        self.root, self.seed, self.scratch = root, seed, scratch
        self.targets, self.tools = found(root), root / "tools"
        known = root / "expected.json"
        self.expected: dict[str, Numbers] = json.loads(known.read_text()) if known.exists() else {}
        self.canary = scratch.with_name(f"{scratch.name}-canary")
        os.environ["HEAT_OOD_CANARY"] = str(self.canary)
        os.environ["PATH"] = f"{self.tools / 'programs'}{os.pathsep}{os.environ['PATH']}"
        for module in LOADED:
            import_module(module)

    def expect(self) -> None:
        """Keep what each route answers where nothing is attacked."""
        for i, route in enumerate(ROUTES):
            for target in self.targets[route.kind][:: route.every]:
                self.fresh(target)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    self.expected[f"{i}/{target.name}"] = route.run(self.scratch / "it", target, self.tools)
        (self.root / "expected.json").write_text(json.dumps(self.expected))

    def fresh(self, target: Target) -> Path:
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.scratch.mkdir(parents=True)
        os.chdir(self.scratch)
        return copied(target.folder, self.scratch / "it")

    def choose(self, number: int) -> tuple[Plan, random.Random, Target, Target]:
        """The plan of a try, its random numbers, and its target with another of the same format."""
        what, rng = plan(number), random.Random(f"{self.seed}/{number}")
        same = self.targets[what.way.kind]
        return what, rng, rng.choice(same[:: what.way.every]), rng.choice(same)

    def change(self, number: int) -> tuple[Plan, Target, str]:
        """Attack a fresh copy of the target; says how."""
        what, rng, target, other = self.choose(number)
        folder = self.fresh(target)
        done = [self.attack(rng, folder, other.folder, what.forged) for _ in range(rng.choice([1, 1, 1, 2]))]
        if what.forged:
            SEALS[target.kind](folder)
        return what, target, "; ".join(done)

    def attack(self, rng: random.Random, folder: Path, other: Path, forged: bool) -> str:
        if not files_of(folder) or rng.random() < 0.08:
            return damage_folder(rng, folder, other) if files_of(folder) else "all is gone"
        file = rng.choice(self.weighted(files_of(folder)))
        content = file.read_bytes() if file.stat().st_size < 2**24 else b""
        there = other / file.relative_to(folder)
        name = file.relative_to(folder)
        if rng.random() < (0.85 if forged else 0.4):
            new, done = self.edited(rng, file, content)
        else:
            second = there if there.is_file() else rng.choice(files_of(other))
            new, done = damage_bytes(rng, content, second.read_bytes())
        file.write_bytes(new)
        return f"{name}: {done}"

    def weighted(self, files: list[Path]) -> list[Path]:
        """Manifests rather than the many files beside them; what a guard's folder keeps but does not read, seldom."""
        main = [f for f in files if f.suffix in (".json", ".toml")]
        kept = [f for f in files if not {"features", "checkpoint"} & set(f.relative_to(self.scratch).parts)] or files
        return kept + [f for f in main if f in kept] * 2

    def edited(self, rng: random.Random, file: Path, content: bytes) -> tuple[bytes, str]:
        """The content with an edit that knows its format; damaged otherwise where there is none for it."""
        try:
            if file.suffix in (".json", ".toml"):
                edit = edit_json if file.suffix == ".json" else edit_toml
                text, done = edit(rng, content.decode())
                return text.encode("utf-8", "surrogatepass"), done
            return EDITORS[file.suffix](rng, content)
        except Exception:  # already damaged, or of no such format
            return damage_bytes(rng, content, content)

    def run(self, number: int) -> Outcome:
        """One try, from the change to its outcome."""
        what, target, change = self.change(number)
        expected, base = self.expected[f"{what.route}/{target.name}"], memory("VmRSS")
        self.canary.unlink(missing_ok=True)
        reset_peak()
        started = time.perf_counter()
        outcome, note = classify(lambda: what.way.run(self.scratch / "it", target, self.tools), expected)
        seconds, peak = time.perf_counter() - started, memory("VmHWM") - base
        if outcome in ("different", "answered"):
            outcome = "different" if what.way.sealed and not what.forged else "answered"
        if peak > MEMORY:
            outcome, note = "memory", f"{peak / 2**30:.1f} GB; {outcome} {note}"
        if self.canary.exists():
            outcome, note = "code ran", "what the file brought was executed"
        about: dict[str, Any] = {"seconds": round(seconds, 3), "megabytes": round(peak / 2**20)}
        return self.outcome(number, outcome, note, what, target, change, **about)

    def lost(self, number: int, outcome: str, note: str) -> Outcome:
        """The outcome of a try whose process did not come back."""
        what, _, target, _ = self.choose(number)
        return self.outcome(number, outcome, note, what, target, "see --replay")

    def outcome(
        self, number: int, outcome: str, note: str, what: Plan, target: Target, change: str, **more: Any
    ) -> Outcome:
        way = what.way
        return Outcome(
            number, way.kind, way.name, what.forged, way.sealed, target.name, change[:300], outcome, note[:300], **more
        )


def classify(run: Callable[[], Numbers], expected: Numbers) -> tuple[str, str]:
    """What came of a route: the same numbers, a clear error, other numbers, or what nobody should see."""
    from heat_ood import HeatError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = run()
    except (HeatError, CommandError) as error:
        return "refused", f"{type(error).__name__}: {error}"
    except MemoryError as error:
        return "memory", f"MemoryError: {error}"
    except UnclearError as error:
        return "raw", str(error)
    except OSError as error:
        clear = error.errno is not None and error.filename is not None
        return "refused" if clear else "raw", f"{type(error).__name__}: {error}"
    except BaseException as error:
        said = str(error)
        kind = "memory" if "allocate memory" in said or "not enough memory" in said else "raw"
        return kind, f"{type(error).__name__}: {said}"
    return ("same", "") if close(found, expected) else ("different", distance(found, expected))


def distance(found: Numbers, expected: Numbers) -> str:
    if len(found) != len(expected):
        return f"{len(found)} numbers instead of {len(expected)}"
    return f"numbers differ by {max(map(abs, map(float.__sub__, found, expected)), default=math.nan):.3g}"


# Limits


def memory(line: str) -> int:
    """A line of /proc/self/status in bytes."""
    for text in Path("/proc/self/status").read_text().splitlines():
        if text.startswith(line + ":"):
            return int(text.split()[1]) * 1024
    return 0


def reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def limit() -> None:
    """No more memory than a try may take beside what is there, and no core files."""
    most = memory("VmSize") + MEMORY + 2**28
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
