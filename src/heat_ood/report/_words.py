"""Results in sentences: what was run, who wins, by how much, and whether that is more than the spread over seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from ..results import (
    FULL_NAMES,
    SHOWN,
    Duel,
    Entry,
    Results,
    better,
    champion,
    columns,
    duel,
    interval_of,
    judged,
    losses,
    percent,
    plain_composition,
    points,
)

__all__ = ["corrections", "lost", "summary", "what_was_run"]

NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
FPR, AUROC = SHOWN
LIKE_THE_PAPER = "paper's priors, corrected"
"""The row that is made as the paper's HEAT is."""


def count(n: int, what: str, plural: str | None = None) -> str:
    """As "one seed", "three seeds", "38 methods"."""
    return f"{NUMBERS[n] if n < len(NUMBERS) else f'{n:,}'} {what if n == 1 else plural or what + 's'}"


def listed(names: Sequence[str]) -> str:
    """As "a", "a and b", "a, b and c"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def summary(results: Results) -> list[str]:
    """The sentences on top of a report, a paragraph each."""
    by_experiment = {
        "correction": correction,
        "composition": composition,
        "lambda": curve,
        "beta": curve,
        "low-data": curve,
        "cost": cost,
        "qualitative": qualitative,
        "evaluation": evaluated,
    }
    findings = by_experiment.get(results.experiment, ranking)(results)
    return [what_was_run(results), *findings, *gaps(results)]


def what_was_run(results: Results) -> str:
    if results.experiment == "evaluation":
        run = results.measured[0].runs[0].evaluation
        sets = f"{count(len(results.found), 'OOD set')} ({listed(results.found)})"
        return f"{results.measured[0].name}: {run.average.n_id:,} ID samples of {results.id} against {sets}."
    parts = []
    if results.measured:
        kind = "rows" if any(e.x is not None for e in results.measured) else "methods"
        parts.append(count(len(results.measured), kind[:-1]))
        parts.append(f"{count(len(results.counted), 'OOD set')} ({listed(results.counted)})" if results.counted else "")
        others = [name for name in results.found if name not in results.counted]
        parts.append(f"apart from them {listed(others)}" if others else "")
        parts.append(count(len(results.seeds), "seed"))
    what = f": {', '.join(part for part in parts if part)}" if parts else ""
    return f"Experiment “{results.experiment}” on {results.id} with {results.backbone}{what}."


def gaps(results: Results) -> list[str]:
    if not results.missing:
        return []
    names = listed([m.name for m in results.missing])
    return [f"Not found, and left out of the averages: {names}. Where to get them stands under the details."]


def value(results: Results, entry: Entry, metric: str) -> str:
    mean = results.mean(entry, metric)
    spread = "" if math.isnan(mean.spread) else f" ± {100 * mean.spread:.1f}"
    return f"{percent(mean.mean)}{spread} %"


# Tables of methods


def ranking(results: Results) -> list[str]:
    """Who has the best average by each metric, HEAT's place, and HEAT beside the plain composition."""
    sentences = [sentence for metric in SHOWN for sentence in placing(results, metric)]
    heat, plain = champion(results), plain_composition(results)
    if heat and plain:
        sentences.append(beside(results, heat, plain))
    if heat and not losses(results) and len(results.measured) > 1:
        sentences.append("HEAT has the best number, or shares it, on every set and in every average.")
    sentences += paper(results, heat)
    return sentences


def lost(results: Results) -> str | None:
    """How often HEAT does not win; None where it always does."""
    found = losses(results)
    if not found:
        return None
    lost = {metric: sum(loss.metric == metric for loss in found) for metric in SHOWN}
    counts = [f"{n} by {FULL_NAMES[metric]}" for metric, n in lost.items() if n]
    total = count(len(judged(results)), "column")
    heat = champion(results)
    who = "HEAT" if heat is None or heat.name == "HEAT" else f"HEAT ({heat.name})"
    return f"{who} does not win everywhere: of {total}, it does not have the best number in {' and '.join(counts)}."


def placing(results: Results, metric: str) -> list[str]:
    ranked, heat = results.ranked(metric), champion(results)
    if len(ranked) < 2:
        return []
    best, second = ranked[:2]
    word = "lowest" if better(metric) < 0 else "highest"
    match = duel(results, best, second, metric)
    text = f"{best.name} has the {word} average {FULL_NAMES[metric]}, {value(results, best, metric)}: "
    text += f"{points(match.lead)} better than the next, {second.name} ({value(results, second, metric)}); "
    text += f"{match.verdict}.{sampling(results, match)}"
    if heat is not None and heat in ranked and heat != best:
        behind = duel(results, heat, best, metric)
        text += f" HEAT is number {ranked.index(heat) + 1} of {len(ranked)} with {value(results, heat, metric)}, "
        text += f"{points(behind.lead)} behind; {behind.verdict}."
    return [text]


def sampling(results: Results, match: Duel) -> str:
    """A warning where the lead is smaller than what the draw of test samples does to either row."""
    average = columns(results)[-1]
    found = [interval_of(results, entry, match.metric, average) for entry in (match.first, match.second)]
    half = max(((ends[1] - ends[0]) / 2 for ends in found if ends is not None), default=0.0)
    if abs(match.lead) >= half:
        return ""
    return f" It is less than the bootstrap interval of either row, ± {points(half)}: other test images may reverse it."


def beside(results: Results, heat: Entry, plain: Entry) -> str:
    clauses = []
    for metric in SHOWN:
        match = duel(results, heat, plain, metric)
        word = "better" if match.lead >= 0 else "worse"
        clauses.append(f"{points(match.lead)} {word} by {FULL_NAMES[metric]} ({match.verdict})")
    name = f"the {plain.name}" if plain.name == "plain composition" else plain.name
    return f"Against {name}, which has the same priors and no residuals, HEAT is {' and '.join(clauses)}."


def paper(results: Results, heat: Entry | None) -> list[str]:
    theirs = next((entry for entry in results.paper if heat is not None and entry.name == heat.name), None)
    if theirs is None or heat is None or math.isnan(results.mean(theirs, AUROC).mean):
        return []
    numbers = " / ".join(percent(results.mean(theirs, metric).mean) for metric in SHOWN)
    ours = [entry for entry in results.measured if entry is heat or entry.name == LIKE_THE_PAPER]
    found = {entry.name: " / ".join(percent(results.mean(entry, metric).mean) for metric in SHOWN) for entry in ours}
    here = f"here HEAT has {found.pop(heat.name)}" + "".join(f", and {name}, {pair}" for name, pair in found.items())
    text = f"The paper reports {numbers} (FPR95 / AUROC) for HEAT as it is there, three priors of the last layer, each "
    return [f"{text}corrected, and with its own network; {here}."]


# Other experiments


def evaluated(results: Results) -> list[str]:
    """One detector: what its average means, and the sets that it finds easiest and hardest."""
    run = results.measured[0].runs[0].evaluation
    low, high = run.average.intervals.get(AUROC, (math.nan, math.nan))
    between = "" if math.isnan(low) else f" (between {percent(low)} and {percent(high)}, by the bootstrap)"
    text = f"Its average AUROC is {percent(run.average.auroc)} %{between}. At the threshold that accepts 95 % of ID, "
    sentences = [text + f"{percent(run.average.fpr_at_95_id)} % of OOD are accepted: that is the FPR95."]
    if len(run) > 1:
        ranked = sorted(run, key=lambda row: row.fpr_at_95_id)
        easy, hard = (f"{row.name} ({percent(row.fpr_at_95_id)} %)" for row in (ranked[0], ranked[-1]))
        sentences.append(f"By FPR95 the easiest set is {easy}, and the hardest {hard}.")
    return sentences


def corrections(results: Results) -> list[tuple[str, Entry, Entry]]:
    """Pairs of a row and its corrected form, by the name they share."""
    by_name = {entry.name: entry for entry in results.measured}
    found = []
    for name, after in by_name.items():
        base = name.removesuffix(", corrected")
        before = by_name.get(base) or by_name.get(f"{base}, uncorrected")
        if base != name and before is not None:
            found.append((base, before, after))
    return found


def correction(results: Results) -> list[str]:
    sentences = []
    for metric in SHOWN:
        leads = {name: duel(results, after, before, metric).lead for name, before, after in corrections(results)}
        if not leads:
            continue
        worse = [name for name, lead in leads.items() if lead < 0]
        middle = median(leads.values())
        text = f"By average {FULL_NAMES[metric]}, the correction helps {len(leads) - len(worse)} of {len(leads)} rows; "
        text += f"the median change is {points(middle)} {'better' if middle >= 0 else 'worse'}."
        sentences.append(text + (f" It does harm to {listed(worse)}." if worse else ""))
    return sentences


def composition(results: Results) -> list[str]:
    return [*ranking(results), *correction(results)]


def curve(results: Results) -> list[str]:
    """Of each line: its best point, and how far its points lie apart."""
    sentences = []
    for series in dict.fromkeys(entry.series for entry in results.measured):
        entries = [entry for entry in results.measured if entry.series == series and entry.x is not None]
        clauses = []
        for metric in SHOWN:
            ranked = [entry for entry in results.ranked(metric) if entry in entries]
            if len(ranked) < 2:
                continue
            match = duel(results, ranked[0], ranked[-1], metric)
            text = f"The best average {FULL_NAMES[metric]} is {value(results, ranked[0], metric)} "
            text += f"({ranked[0].name}), the worst {value(results, ranked[-1], metric)} ({ranked[-1].name}); "
            clauses.append(text + f"they lie {points(match.lead)} apart, {match.verdict}.")
        sentences += [f"{series}. {' '.join(clauses)}"] if clauses else []
    return sentences + against_none(results)


def against_none(results: Results) -> list[str]:
    """With which λ a residual is better than none."""
    points = [entry for entry in results.measured if entry.x is not None]
    none = [entry for entry in points if results.experiment == "lambda" and entry.x == math.inf]
    if len(none) != 1 or len(points) < 2:
        return []
    clauses = []
    for metric in SHOWN:
        others = [entry for entry in points if entry not in none]
        helped = [entry.name for entry in others if duel(results, entry, none[0], metric).lead > 0]
        which = "everywhere" if len(helped) == len(others) else f"at {listed(helped)}" if helped else "nowhere"
        clauses.append(f"by {FULL_NAMES[metric]} {which}")
    return [f"The residual is better than none, whose line is level: {', '.join(clauses)}."]


def cost(results: Results) -> list[str]:
    found = {item.name: item for item in results.costs}
    sentences = []
    if "HEAT" in found:
        backbone = results.costs[0]
        text = f"With HEAT, a sample takes {found['HEAT'].milliseconds:.3g} ms, of which {100 * backbone.share:.0f} % "
        text += f"are the {backbone.name}'s and {found['HEAT'].milliseconds - backbone.milliseconds:.2g} ms its own"
        ensembles = [item for name, item in found.items() if "ensemble" in name]
        text += f"; an ensemble takes {ensembles[0].share:.2g} times as long" if ensembles else ""
        sentences.append(text + ".")
    return sentences


def qualitative(results: Results) -> list[str]:
    caught = sum("HEAT" in picture.caught_by for picture in results.pictures)
    text = f"{count(len(results.pictures), 'picture').capitalize()} on which the methods disagree: HEAT catches "
    return [
        text + f"{caught} and misses {len(results.pictures) - caught}. They were chosen, so the share says nothing."
    ]
