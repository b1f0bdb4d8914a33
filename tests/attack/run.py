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
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
for folder in (HERE, HERE.parent / "helpers"):
    sys.path.insert(0, str(folder))
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, filter(None, sys.path)))  # of the processes started here

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


def files(given: argparse.Namespace, root: Path, share: float) -> Any:
    from dataclasses import asdict

    from harness.pool import run_tries

    for i, outcome in enumerate(run_tries(given.tries, given.seed, root, given.jobs, given.start), 1):
        if i % 2000 == 0:
            print(f"{i:,} tries", file=sys.stderr, flush=True)
        yield asdict(outcome)


def alarms(given: argparse.Namespace, root: Path, share: float) -> Any:
    from harness.alarms import simulate_in

    yield from simulate_in(given.jobs, repetitions=max(4, round(400 * share)), seed=given.seed)


def threads(given: argparse.Namespace, root: Path, share: float) -> Any:
    from harness.threads import attack_all

    yield from attack_all(calls=max(25, round(1000 * share)))


def writers(given: argparse.Namespace, root: Path, share: float) -> Any:
    from harness.writers import attack_all

    yield from attack_all(root / "writers", rounds=max(20, round(1000 * share)))


PART = {"files": files, "alarms": alarms, "threads": threads, "writers": writers}


def replay(root: Path, seed: int, number: int, keep: Path | None) -> int:
    """One try again, with limits; then once more without its error being caught."""
    import shutil
    import traceback

    from harness.pool import run_here
    from harness.tries import BAD, Attack

    if not (root / "expected.json").exists():
        import subprocess

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
