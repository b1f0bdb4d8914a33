"""Pictures in a report: which OOD images each method catches, as the paper shows it, and which are judged wrongly."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

from ..results import Picture, Results
from ._blocks import box, section
from ._markup import Raw, el

__all__ = ["gallery"]


def gallery(results: Results) -> Raw | None:
    """Of each OOD set a grid: a column an image, a row a method, green frames where it is caught and red where not."""
    if not results.pictures:
        return None
    if results.experiment == "evaluation":
        return wrong(results)
    sets = dict.fromkeys(picture.set for picture in results.pictures)
    parts = []
    for name in sets:
        chosen = [picture for picture in results.pictures if picture.set == name]
        parts += [el("h4", name), box(verdicts(chosen), f"who catches which image of {name}")]
    note = (
        "A column is an OOD image, a row a method. Green with ✓: called OOD. Red and dashed with ✗: taken for ID, at "
    )
    note += "the threshold that accepts 95 % of ID. First those that HEAT catches, then those that it misses."
    return section("Hits and misses", stored(results.pictures), *parts, note=note)


def stored(pictures: Sequence[Picture]) -> Raw:
    """Every image once, to be shown in several rows."""
    images = {mark(picture): picture.image for picture in pictures}
    held = [el("image", id=name, href=address, width=1, height=1) for name, address in images.items()]
    return el("svg", el("defs", *held), class_="patterns", aria_hidden="true", width=0, height=0)


def mark(picture: Picture) -> str:
    return f"p{hashlib.sha256(picture.image.encode()).hexdigest()[:16]}"


def verdicts(pictures: Sequence[Picture]) -> Raw:
    """HEAT's row last, as in the paper; pictures that it catches first."""
    names = dict.fromkeys(name for p in pictures for name in (*p.caught_by, *p.missed_by))
    rows = []
    for name in sorted(names, key=lambda n: n == "HEAT"):
        ordered = sorted(pictures, key=lambda p: "HEAT" not in p.caught_by)
        cells = [shot(picture, name) for picture in ordered]
        rows.append(el("tr", el("th", name, scope="row"), *cells))
    return el("table", el("tbody", *rows), class_="verdicts")


def shot(picture: Picture, name: str) -> Raw:
    if name not in (*picture.caught_by, *picture.missed_by):
        return el("td")
    caught = name in picture.caught_by
    said = f"an image of {picture.set}, {'caught' if caught else 'missed'} by {name}"
    score = picture.scores.get(name)
    image = el("svg", el("use", href=f"#{mark(picture)}"), viewBox="0 0 1 1", role="img", aria_label=said)
    sign = el("span", "✓" if caught else "✗", aria_hidden="true")
    hint = None if score is None else f"score {score:.4g}"
    return el("td", image, sign, class_="hit" if caught else "miss", title=hint)


def wrong(results: Results) -> Raw:
    """Of each set the images that are judged most wrongly: of ID the most unusual, of OOD the least."""
    method = results.measured[0].name
    parts = []
    for name in dict.fromkeys(picture.set for picture in results.pictures):
        title = f"{name}: least unusual OOD images" if name in results.sets else f"{name}: most unusual ID images"
        cards = [scored(picture, method) for picture in results.pictures if picture.set == name]
        parts += [el("h4", title), el("div", *cards, class_="gallery")]
    note = (
        "The most unusual first for ID, the least unusual first for OOD, each with its score; “accepted” and “called "
    )
    return section("Images to look at", *parts, note=note + "OOD” are at the threshold that accepts 95 % of ID.")


def scored(picture: Picture, method: str) -> Raw:
    verdict = "called OOD" if method in picture.caught_by else "accepted"
    said = f"{picture.scores.get(method, math.nan):.4g}, {verdict}"
    image = el("img", src=picture.image, alt=f"an image of {picture.set}")
    return el("figure", image, el("figcaption", el("b", picture.file or picture.set), el("div", said)))
