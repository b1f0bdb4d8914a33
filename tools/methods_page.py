"""What docs/methods.md says of each method by itself: its class, what it reads, and what was measured.

    python tools/methods_page.py            # writes the marked blocks, and the front page's list of methods
    python tools/methods_page.py --check    # fails where they are not current

A method's section is the heading with its name, ``### `vim` ``, and a paragraph; the rest is put below the heading.
Numbers are those of docs/results: ``SUITE/main/results.json`` and ``SUITE/correction/results.json``, as ``heat-ood
benchmark`` writes them, and ``methods.json`` for forms that these have not. A method that is in none of them says so.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from heat_ood import HEAT, Prior, methods
from heat_ood.registry import METHODS
from heat_ood.results import Results

ROOT = Path(__file__).parents[1]
PAGE, FRONT = Path("docs/methods.md"), Path("docs/index.md")
COMMAND = "python tools/methods_page.py"
SHOWN = ("fpr_at_95_id", "auroc")
HEADING = re.compile(r"^### `([^`]+)`\n", re.MULTILINE)
FACTS = re.compile(r"\n*<!-- facts -->.*?<!-- /facts -->\n*|\n*", re.DOTALL)
UNKNOWN = "not measured yet"
Reads = Mapping[str, tuple[str, ...]]
COUNTS = ("no", "one", "two", "three", "four", "five")


class Number(NamedTuple):
    """FPR95 and AUROC, means over so many runs."""

    fpr: float
    auroc: float
    runs: int

    def __str__(self) -> str:
        return f"{100 * self.fpr:.1f} / {100 * self.auroc:.1f}"


class Network(NamedTuple):
    """What was measured on one network, by the name of the row: "vim", "gmm, corrected", "plain composition"."""

    title: str
    rows: Mapping[str, Number]
    composed: Sequence[str]


def ours() -> list[str]:
    """The names of the library's own methods; what else is registered in this process is not of the page."""
    return [name for name in methods() if METHODS[name].make.__module__.partition(".")[0] == "heat_ood"]


# What was measured


def networks(root: Path = ROOT) -> list[Network]:
    """One for each suite that has been run."""
    folder = root / "docs" / "results"
    earlier = folder / "methods.json"
    old = json.loads(earlier.read_text(encoding="utf-8")) if earlier.exists() else {}
    return [network(file, old) for file in sorted(folder.glob("*/main/results.json"))]


def network(file: Path, earlier: Mapping[str, Any]) -> Network:
    main, corrected = Results.load(file), file.parents[1] / "correction" / "results.json"
    rows = of_results(main)
    if corrected.exists():
        rows = of_results(Results.load(corrected)) | rows
    name = main.suite.removeprefix("shared-")
    rows = of_runs([runs for key, runs in earlier.items() if key.split("/")[0] == name]) | rows
    composed = [e.name for e in main.measured if e.kind in ("heat", "composition") and e.name != "HEAT"]
    return Network(main.id, rows, composed)


def of_results(results: Results) -> dict[str, Number]:
    """The rows of a benchmark; HEAT's own under its name as a method."""
    return {
        "heat" if entry.name == "HEAT" else entry.name: Number(
            *(results.mean(entry, metric).mean for metric in SHOWN), len(entry.runs)
        )
        for entry in results.measured
    }


def of_runs(runs: Sequence[Mapping[str, Any]]) -> dict[str, Number]:
    """The forms of methods, as "knn, smooth", among what an earlier script found, seed by seed."""
    names = dict.fromkeys(row for run in runs for row in run if row.partition(", ")[0] in METHODS and ", " in row)
    found = {name: [run[name]["average"] for run in runs if name in run] for name in names}
    means = {name: [float(np.mean([a[m] for a in averages])) for m in SHOWN] for name, averages in found.items()}
    return {name: Number(*means[name], len(found[name])) for name in names}


# What is written


def table(names: Sequence[str], reads: Reads, nets: Sequence[Network]) -> str:
    """All methods in the order of the page, then what HEAT composes besides."""
    titles = ["method", "reads", "corrected by HEAT", *(t for net in nets for t in (net.title, "corrected"))]
    lines = [row(titles), "|---" * 3 + "|---:" * (2 * len(nets)) + "|"]
    for name in names:
        numbers = [t for net in nets for t in (shown(net, name), shown(net, f"{name}, corrected", "–"))]
        lines.append(row([f"[`{name}`](#{name})", ", ".join(reads[name]), correctable(name), *numbers]))
    composed = dict.fromkeys(name for net in nets for name in net.composed)
    lines += [row([name, "", "", *(t for net in nets for t in (shown(net, name), "–"))]) for name in composed]
    return "\n".join([*lines, "", seeds(names, nets)])


def facts(name: str, reads: Reads, nets: Sequence[Network]) -> str:
    """A method's class, what it reads, and its numbers, those of its other forms below."""
    titles = ["class", "reads", "corrected by HEAT", *(f"{net.title}: FPR95 ↓ / AUROC ↑" for net in nets)]
    lines = [row(titles), "|---" * 3 + "|---:" * len(nets) + "|"]
    lines.append(row([class_of(name), ", ".join(reads[name]), correctable(name), *(shown(net, name) for net in nets)]))
    forms = dict.fromkeys(other for net in nets for other in net.rows if other.startswith(f"{name}, "))
    lines += [row([f"… {form.partition(', ')[2]}", "", "", *(shown(net, form) for net in nets)]) for form in forms]
    return "\n".join(lines)


def row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def shown(net: Network, name: str, gap: str = UNKNOWN) -> str:
    return str(net.rows.get(name, gap))


def class_of(name: str) -> str:
    """A link to the class, with the settings that the name stands for."""
    method = METHODS[name]
    file = Path(inspect.getsourcefile(method.make) or "").resolve().relative_to(ROOT)
    settings = ", ".join(f"{key}={value!r}" for key, value in method.settings.items())
    title = method.make.__name__
    return f"[`{title}`](../{file.as_posix()}#{title})" + (f" with `{settings}`" if settings else "")


def correctable(name: str) -> str:
    method = METHODS[name]
    if issubclass(method.make, HEAT):
        return "–"
    return "yes" if isinstance(method.make.as_prior(**method.settings), Prior) else "no"


def seeds(names: Sequence[str], nets: Sequence[Network]) -> str:
    """Over how many runs the numbers of the table are averaged."""
    runs = {name: max((net.rows[name].runs for net in nets if name in net.rows), default=0) for name in names}
    usual = max(runs.values(), default=0)
    fewer = [f"{name}: {COUNTS[n]}" for name, n in runs.items() if 0 < n < usual]
    forms = {net.rows[row].runs for net in nets for name in names if (row := f"{name}, corrected") in net.rows}
    text = f"Mean of {COUNTS[usual]} seeds" + (f" ({', '.join(fewer)})" if fewer else "")
    return f"{text}; corrected: {' or '.join(COUNTS[n] for n in sorted(forms))}." if forms else f"{text}."


def listed(names: Iterable[str]) -> str:
    """Links to all sections, as the front page has them, a line each."""
    return " ·\n".join(f"[`{name}`]({PAGE.name}#{name})" for name in names)


# Writing and checking


def sections(text: str) -> list[str]:
    """The methods that have a section, in the page's order; one that is missing or strange is an error."""
    found = HEADING.findall(text)
    for name in ours():
        if found.count(name) != 1:
            sys.exit(f"{PAGE} has {found.count(name)} sections on {name}. Write one: ### `{name}`, and a paragraph.")
    strange = [name for name in found if name not in METHODS]
    if strange:
        sys.exit(f"{PAGE} has a section on {strange[0]}, which is no method. Remove it, or register the method.")
    return found


def filled(text: str, name: str, block: str) -> str:
    """A text with what stands between two marks renewed."""
    begin, end = f"<!-- {name}: {COMMAND} -->", f"<!-- /{name} -->"
    before, mark, rest = text.partition(begin)
    if not mark or end not in rest:
        sys.exit(f"There is no place for the block {name!r}. Put {begin} and {end} on lines of their own.")
    return f"{before}{begin}\n{block}\n{end}{rest.partition(end)[2]}"


def page(text: str, nets: Sequence[Network]) -> str:
    """docs/methods.md as it should be."""
    reads = methods()
    text = filled(text, "table", table(sections(text), reads, nets))
    parts = HEADING.split(text)
    for i in range(1, len(parts), 2):
        rest = FACTS.sub("", parts[i + 1], count=1)
        block = f"<!-- facts -->\n{facts(parts[i], reads, nets)}\n<!-- /facts -->"
        parts[i : i + 2] = [f"### `{parts[i]}`\n\n{block}\n\n", rest]
    return "".join(parts)


def current(root: Path = ROOT) -> dict[Path, str]:
    """Both files as they should be."""
    text, front = ((root / file).read_text(encoding="utf-8") for file in (PAGE, FRONT))
    return {PAGE: page(text, networks(root)), FRONT: filled(front, "methods", listed(sections(text)))}


def differences(root: Path = ROOT) -> list[str]:
    """The files that are not as they should be."""
    return [str(file) for file, text in current(root).items() if text != (root / file).read_text(encoding="utf-8")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a file is not current")
    if parser.parse_args().check:
        wrong = differences()
        sys.exit(f"{', '.join(wrong)} differ from the results. Run {COMMAND}." if wrong else 0)
    for file, text in current().items():
        (ROOT / file).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
