"""The claims of the paper beside what was measured here, in docs/paper.md.

    python tools/paper_page.py            # writes the marked block
    python tools/paper_page.py --check    # fails where it is not current

Numbers are those of docs/results: ``SUITE/EXPERIMENT/results.json``, as ``heat-ood benchmark`` writes them, and the
paper's own, which travel in them. Verdicts are words, of
``tools/paper_verdicts.toml``: whoever runs an experiment anew reads them again.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from heat_ood.benchmarks import paper_entries
from heat_ood.results import Entry, Results

ROOT = Path(__file__).parents[1]
PAGE, VERDICTS = Path("docs/paper.md"), Path("tools/paper_verdicts.toml")
BEGIN, END = "<!-- claims: python tools/paper_page.py -->", "<!-- /claims -->"
PRIORS = ("gmm", "gmm-std", "energy")
GROUPS = ("near", "mid", "far")
PAPER_GROUPS = {"near": slice(0, 2), "mid": slice(2, 4), "far": slice(4, 6)}
SUITES = {"shared-cifar10": "cifar10", "shared-cifar100": "cifar100"}
ABSENT = "not run to its end yet"
HEADER = "| claim | network | paper | here, the text's settings | here, the library's residual | verdict |"


def not_run(suite: str) -> str:
    """Of claims that would take a fit by the text's settings for each point."""
    return "not run: hours a point"


class Claim(NamedTuple):
    """A row of the table: what the paper says, and cells for each network, which are given a suite's name."""

    title: str
    paper: Callable[[str], str]
    ours: Callable[[str], str]
    text: Callable[[str], str] = not_run


# Numbers


def results(suite: str, experiment: str) -> Results | None:
    file = ROOT / "docs" / "results" / suite / experiment / "results.json"
    return Results.load(file) if file.is_file() else None


def row(found: Results, name: str) -> Entry:
    return next(entry for entry in found.measured if entry.name == name)


def auroc(found: Results, name: str, group: str | None = None) -> float:
    sets = None if group is None else found.groups[group]
    return 100 * found.mean(row(found, name), "auroc", sets).mean


def both(found: Results, name: str) -> str:
    """FPR95 / AUROC."""
    fpr, area = (100 * found.mean(row(found, name), metric).mean for metric in ("fpr_at_95_id", "auroc"))
    return f"{fpr:.1f} / {area:.1f}"


def printed(suite: str, experiment: str) -> dict[str, Entry]:
    """The paper's rows."""
    return {entry.name: entry for entry in paper_entries(SUITES[suite], experiment)}


def printed_both(entry: Entry) -> str:
    average = entry.runs[0].evaluation.average
    return f"{100 * average.fpr_at_95_id:.1f} / {100 * average.auroc:.1f}"


def printed_auroc(entry: Entry, group: str | None = None) -> float:
    evaluation = entry.runs[0].evaluation
    if group is None:
        return 100 * evaluation.average.auroc
    return 100 * float(np.mean([r.auroc for r in list(evaluation)[PAPER_GROUPS[group]]]))


def signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−")


# By the text's own settings, one seed: rows of the experiment `paper`, as far as they have been run

WHOLE = "HEAT.paper()"


def by_text(suite: str) -> dict[str, str]:
    """The rows there are, by the prior that each corrects; the whole by its own name."""
    found = results(suite, "paper")
    there = set() if found is None else {entry.name for entry in found.measured}
    rows = {p: f"{p}, corrected as in the paper" for p in PRIORS} | {WHOLE: WHOLE}
    return {title: row for title, row in rows.items() if row in there}


def lacking(suite: str) -> str:
    absent = [p for p in PRIORS if p not in by_text(suite)]
    return f"; {', '.join(absent)}: {ABSENT}" if absent else ""


def whole_by_text(suite: str) -> str:
    found = results(suite, "paper")
    return ABSENT if found is None or WHOLE not in by_text(suite) else f"{WHOLE} {both(found, WHOLE)}"


def corrections_by_text(suite: str) -> str:
    found, plain, rows = results(suite, "paper"), results(suite, "main"), by_text(suite)
    if found is None or plain is None or not rows:
        return ABSENT
    pairs = [f"{p} {both(plain, p)} → {both(found, rows[p])}" for p in PRIORS if p in rows]
    return "; ".join(pairs) + lacking(suite)


def gains_by_text(suite: str) -> str:
    found, plain, rows = results(suite, "paper"), results(suite, "main"), by_text(suite)
    if found is None or plain is None or not rows:
        return ABSENT

    def gain(prior: str, group: str) -> str:
        return signed(auroc(found, rows[prior], group) - auroc(plain, prior, group))

    return "; ".join(f"{p} {' '.join(gain(p, g) for g in GROUPS)}" for p in PRIORS if p in rows) + lacking(suite)


def against_ebm_by_text(suite: str) -> str:
    found, rows = results(suite, "paper"), by_text(suite)
    if found is None or "gmm" not in rows:
        return ABSENT
    return f"gmm, corrected {auroc(found, rows['gmm']):.1f}"


def parts_by_text(suite: str) -> str:
    found, rows = results(suite, "paper"), by_text(suite)
    if found is None or WHOLE not in rows:
        return ABSENT
    best = max((p for p in PRIORS if p in rows), key=lambda p: auroc(found, rows[p]))
    return f"best part, {best}, corrected {both(found, rows[best])}; all three {both(found, WHOLE)}"


# Cells


def corrections(suite: str) -> str:
    if (found := results(suite, "correction")) is None:
        return ABSENT
    return "; ".join(f"{p} {both(found, p)} → {both(found, f'{p}, corrected')}" for p in PRIORS)


def printed_corrections(suite: str) -> str:
    rows = printed(suite, "correction")
    return "; ".join(f"{p} {printed_both(rows[p])} → {printed_both(rows[f'{p}, corrected'])}" for p in PRIORS)


def gains(suite: str) -> str:
    if (found := results(suite, "correction")) is None:
        return ABSENT

    def gain(prior: str, group: str) -> str:
        return signed(auroc(found, f"{prior}, corrected", group) - auroc(found, prior, group))

    return "; ".join(f"{p} {' '.join(gain(p, g) for g in GROUPS)}" for p in PRIORS)


def printed_gains(suite: str) -> str:
    rows = printed(suite, "correction")

    def gain(prior: str, group: str) -> str:
        return signed(printed_auroc(rows[f"{prior}, corrected"], group) - printed_auroc(rows[prior], group))

    return "; ".join(f"{p} {' '.join(gain(p, g) for g in GROUPS)}" for p in PRIORS)


def against_ebm(suite: str) -> str:
    found = results(suite, "residual")
    return ABSENT if found is None else listed((n, auroc(found, n)) for n in ("gmm", "ebm", "gmm, corrected"))


def printed_against_ebm(suite: str) -> str:
    rows = printed(suite, "residual")
    return listed((n, printed_auroc(rows[n])) for n in ("gmm", "ebm", "gmm, corrected"))


def parts(suite: str) -> str:
    if (found := results(suite, "composition")) is None:
        return ABSENT
    whole = " + ".join(PRIORS)
    names = [f"{n}, {how}" for how in ("uncorrected", "corrected") for n in PRIORS]
    pairs = [e.name for e in found.measured if e.name.count(" + ") == 1 and e.name.endswith(", corrected")]
    best, pair = (max(which, key=lambda n: auroc(found, n)) for which in (names, pairs))
    shown = {f"best part, {best}": best, f"best pair, {pair}": pair}
    shown |= {"all three, plain": f"{whole}, uncorrected", "all three, corrected": f"{whole}, corrected"}
    return "; ".join(f"{title} {both(found, name)}" for title, name in shown.items())


def printed_parts(suite: str) -> str:
    single, several = printed(suite, "correction"), printed(suite, "composition")
    best = max((f"{p}, corrected" for p in PRIORS), key=lambda n: printed_auroc(single[n]))
    whole = f"{' + '.join(PRIORS)}, corrected"
    return f"best part, {best} {printed_both(single[best])}; all three {printed_both(several[whole])}"


def lambdas(suite: str) -> str:
    if (found := results(suite, "lambda")) is None:
        return ABSENT
    values = ("0.1", "2", "10", "50")
    return "; ".join(f"{n} {both(found, n)}" for n in (*(f"λ = {v}" for v in values), "no residual"))


def printed_lambdas(suite: str) -> str:
    rows = printed(suite, "correction")
    return f"λ = 10 {printed_both(rows['gmm, corrected'])}; no residual {printed_both(rows['gmm'])}; else a figure"


def betas(suite: str) -> str:
    if (found := results(suite, "beta")) is None:
        return ABSENT
    return "; ".join(f"{n} {both(found, n)}" for n in ("β = −∞", "β = −1", "β = 0", "β = 1", "β = ∞"))


def printed_betas(suite: str) -> str:
    return f"β = 0 {printed_both(printed(suite, 'main')['HEAT'])}; else a figure"


def shares(suite: str) -> str:
    if (found := results(suite, "low-data")) is None:
        return ABSENT
    names = ("gmm", "ebm", "paper's priors, corrected")

    def values(name: str) -> str:
        return ", ".join(f"{auroc(found, f'{name}, {share} %'):.1f}" for share in (1, 10, 100))

    return "; ".join(f"{name} {values(name)}" for name in names)


def composed(suite: str) -> str:
    found = results(suite, "main")
    assert found is not None
    names = ("paper's priors, plain", "paper's priors, corrected", "plain composition", "HEAT")
    return "; ".join(f"{name} {both(found, name)}" for name in names)


def printed_composed(suite: str) -> str:
    rows = printed(suite, "main")
    best = max((n for n in rows if n != "HEAT"), key=lambda n: printed_auroc(rows[n]))
    return f"HEAT {printed_both(rows['HEAT'])}; best other, {best}, {printed_both(rows[best])}"


def variant(name: str, *shown: str) -> Callable[[str], str]:
    def cell(suite: str) -> str:
        found = results(suite, name)
        if found is None:
            return ABSENT if name == "dice" else "one such network, on CIFAR-10"
        return "; ".join(f"{n} {both(found, n)}" for n in shown)

    return cell


def listed(values: Iterable[tuple[str, float]]) -> str:
    return "; ".join(f"{name} {value:.1f}" for name, value in values)


def said(text: str, other: str | None = None) -> Callable[[str], str]:
    """Words of the paper, for CIFAR-10 and for CIFAR-100."""
    return lambda suite: text if suite == "shared-cifar10" or other is None else other


FOUR = ("paper's priors, plain", "paper's priors, corrected", "plain composition", "HEAT")
DICED = tuple(f"paper's priors with DICE for the energy, {form}" for form in ("plain", "corrected"))
LOW = ("a figure: HEAT above gmm at every share", "ebm loses 12 from 100 to 10 %, gmm 0.3")
SUPCON = "SupCon ResNet-50: far below KNN+ and SSD+"
CLAIMS = {
    "whole": Claim("The whole beats other methods", printed_composed, composed, whole_by_text),
    "correction": Claim("The correction improves each prior", printed_corrections, corrections, corrections_by_text),
    "gains": Claim("… more on near and mid than on far (AUROC gained there)", printed_gains, gains, gains_by_text),
    "ebm": Claim("A residual beats a pure EBM (AUROC)", printed_against_ebm, against_ebm, against_ebm_by_text),
    "parts": Claim("The composition beats its parts", printed_parts, parts, parts_by_text),
    "lambda": Claim("Robust to λ in [2, 50] (`gmm` corrected)", printed_lambdas, lambdas),
    "beta": Claim("Robust to β, best near 0, −1 a little better", printed_betas, betas),
    "low": Claim("Holds in low data (AUROC at 1, 10, 100 %)", said(*LOW), shares),
    "vit": Claim("Works on a ViT", said("ViT-B/16: 1.7 FPR95 below ViM"), variant("vit", "vim", *FOUR)),
    "contrastive": Claim("Works on a contrastive backbone", said(SUPCON), variant("contrastive", "knn", "ssd", *FOUR)),
    "dice": Claim("DICE for the energy helps further", said("ImageNet alone"), variant("dice", *DICED, *FOUR)),
}


# The page


def block() -> str:
    lines = [HEADER, "|---|---|---|---|---|---|"]
    verdicts = tomllib.loads((ROOT / VERDICTS).read_text(encoding="utf-8"))
    for name, claim in CLAIMS.items():
        for number, suite in enumerate(SUITES):
            title, verdict = (claim.title, verdicts[name]) if number == 0 else ("", "")
            network = SUITES[suite].replace("cifar", "CIFAR-")
            cells = [title, network, claim.paper(suite), claim.text(suite), claim.ours(suite), verdict]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def written() -> str:
    """The page with its block as it should be."""
    head, _, rest = (ROOT / PAGE).read_text(encoding="utf-8").partition(BEGIN)
    return f"{head}{BEGIN}\n{block()}\n{END}{rest.partition(END)[2]}"


def differences() -> list[str]:
    return [] if written() == (ROOT / PAGE).read_text(encoding="utf-8") else [str(PAGE)]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    if not parser.parse_args(arguments).check:
        (ROOT / PAGE).write_text(written(), encoding="utf-8")
    elif different := differences():
        sys.exit(f"{', '.join(different)}: not current. Run python tools/paper_page.py.")


if __name__ == "__main__":
    main()
