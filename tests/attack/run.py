"""Attack what the library promises, and print what came of it: ``make attack``, or

    python tests/attack/run.py                          # 50,000 tries, alarms, threads, writers
    python tests/attack/run.py --only files --tries 2000
    python tests/attack/run.py --replay 1234            # one try again, with its traceback; --keep leaves the files
    python tests/attack/run.py --write docs/reliability.md

The same seed makes the same tries on the same version. It exits with 1 where a promise was broken.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
for folder in (HERE, HERE.parent / "helpers"):
    sys.path.insert(0, str(folder))
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["PYTHONPATH"] = os.pathsep.join(
    map(os.path.abspath, filter(None, sys.path))
)  # of the processes started here

PARTS = ("files", "alarms", "threads", "writers")


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tries", type=int, default=50_000, help="of files; the other parts get their share")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=int, default=0, help="the first try")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", choices=PARTS, action="append", help="leave out the other parts")
    parser.add_argument("--replay", type=int, metavar="NUMBER", help="do one try again, here")
    parser.add_argument("--keep", type=Path, help="with --replay: leave the attacked files in this folder")
    parser.add_argument("--json", type=Path, help="keep all outcomes and rows in this file")
    parser.add_argument("--write", type=Path, help="put the tables into this page")
    parser.add_argument("--root", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--build", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--part-of-files", help=argparse.SUPPRESS)
    parser.add_argument("--rows-of", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    given = options()
    if given.build is not None:
        build(given.build)
        return 0
    if given.part_of_files is not None:
        from harness.pool import work

        job, jobs = map(int, given.part_of_files.split("/"))
        work(given.root, given.seed, given.tries, job, jobs, given.start)
        return 0
    if given.rows_of is not None:
        part, _, names = given.rows_of.partition(":")
        for row in ROWS[part](given, names.split(",") if names else None):
            print(json.dumps(row), flush=True)
        return 0
    with tempfile.TemporaryDirectory(prefix="heat-ood-attack-") as folder:
        root = given.root or Path(folder)
        if given.replay is not None:
            return replay(root, given.seed, given.replay, given.keep)
        return attack(given, root)


def build(root: Path) -> None:
    """The valid files, and what the routes answer to them; once a folder."""
    from harness.targets import build as make
    from harness.tries import Attack

    if not (root / "expected.json").exists():
        make(root)
        Attack(root, 0, root / "scratch-build").expect()


def attack(given: argparse.Namespace, root: Path) -> int:
    from harness import tables

    share, wanted = given.tries / 50_000, given.only or PARTS
    found: dict[str, Any] = {}
    for part in wanted:
        started = time.perf_counter()
        found[part] = rows = list(PART[part](given, root, share))
        print(f"== {part}, {time.perf_counter() - started:.0f} s\n", flush=True)
        print(tables.TABLES[part](rows), "\n", flush=True)
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1))
    if given.write is not None:
        tables.write(given.write, found, given)
    broken = {part: count for part, rows in found.items() if (count := tables.broken(part, rows))}
    print(f"broken promises: {broken or 'none'}")
    return 1 if broken else 0


def files(given: argparse.Namespace, root: Path, share: float) -> Iterator[dict[str, Any]]:
    from dataclasses import asdict

    from harness.pool import run_tries

    for i, outcome in enumerate(run_tries(given.tries, given.seed, root, given.jobs, given.start), 1):
        if i % 2000 == 0:
            print(f"{i:,} tries", file=sys.stderr, flush=True)
        yield asdict(outcome)


# The other parts, each in processes of its own


def alarms(given: argparse.Namespace, root: Path, share: float) -> Iterator[dict[str, Any]]:
    from harness.targets import method_data

    names = sorted(method_data.CASES, key=lambda name: (name not in ("heat", *method_data.BEYOND), name))
    parts = [f"alarms:{','.join(names[job :: given.jobs])}" for job in range(given.jobs)]
    return in_processes(parts, max(4, round(200 * share)), given.seed)


def threads(given: argparse.Namespace, root: Path, share: float) -> Iterator[dict[str, Any]]:
    return in_processes(["threads"], max(25, round(1000 * share)), given.seed)


def writers(given: argparse.Namespace, root: Path, share: float) -> Iterator[dict[str, Any]]:
    return in_processes(["writers"], max(20, round(1000 * share)), given.seed)


def in_processes(parts: list[str], amount: int, seed: int) -> Iterator[dict[str, Any]]:
    """The rows of parts, each in a process of its own, all at once."""
    line = [sys.executable, __file__, "--tries", str(amount), "--seed", str(seed), "--rows-of"]
    processes = [subprocess.Popen([*line, part], stdout=subprocess.PIPE) for part in parts]
    for part, process in zip(parts, processes, strict=True):
        assert process.stdout is not None
        for text in process.stdout:
            yield json.loads(text)
        if process.wait():
            raise SystemExit(f"the attack itself failed: {part} ended with {process.returncode}")


def alarm_rows(given: argparse.Namespace, names: list[str] | None) -> Iterator[dict[str, Any]]:
    import torch

    from harness.alarms import simulate

    torch.set_num_threads(1)
    for name in names or ():
        yield from simulate(name, given.tries, given.seed)


def thread_rows(given: argparse.Namespace, names: list[str] | None) -> Iterator[dict[str, Any]]:
    import torch

    from harness.threads import MODELS, attack_model

    torch.set_num_threads(1)
    for name in names or MODELS:
        yield attack_model(name, given.tries)


def writer_rows(given: argparse.Namespace, names: list[str] | None) -> Iterator[dict[str, Any]]:
    import torch

    from harness.writers import FOLDERS, attack_folder

    torch.set_num_threads(1)
    for name in names or FOLDERS:
        with tempfile.TemporaryDirectory(prefix="heat-ood-writers-") as folder:
            yield attack_folder(name, Path(folder), given.tries)


PART = {"files": files, "alarms": alarms, "threads": threads, "writers": writers}
ROWS = {"alarms": alarm_rows, "threads": thread_rows, "writers": writer_rows}


def replay(root: Path, seed: int, number: int, keep: Path | None) -> int:
    """One try again, with limits; then once more without its error being caught."""
    import shutil
    import traceback

    from harness.pool import run_here
    from harness.tries import BAD, Attack

    if not (root / "expected.json").exists():
        subprocess.run([sys.executable, __file__, "--build", str(root)], check=True)
    tries = Attack(root, seed, root / "scratch-replay")
    here = os.getcwd()
    (outcome,) = run_here(tries, [number])
    for name, value in vars(outcome).items():
        print(f"{name:>10}: {value}")
    what, target, change = tries.change(number)
    print(f"{'change':>10}: {change}")
    os.chdir(here)
    if keep is not None:
        shutil.copytree(tries.scratch / "it", keep, symlinks=True)
    if outcome.outcome not in ("hang", "crash", "memory"):
        try:
            what.way.run(tries.scratch / "it", target, tries.tools)
        except BaseException:
            traceback.print_exc()
    return 1 if outcome.outcome in BAD else 0


if __name__ == "__main__":
    sys.exit(main())
