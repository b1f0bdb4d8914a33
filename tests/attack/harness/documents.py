"""Edits of JSON and TOML that keep them well formed, or nearly so: hostile values, keys gone, doubled, renamed."""

from __future__ import annotations

import json
import random
import re
from typing import Any

__all__ = ["Pairs", "Raw", "dump", "edit_json", "edit_toml", "parse"]


class Raw(str):
    """Text that is written as it is."""


class Pairs(list[tuple[str, Any]]):
    """An object as its keys and values, in order; a key may stand twice."""


def parse(text: str) -> Any:
    """JSON with objects as :class:`Pairs`."""
    return json.loads(text, object_pairs_hook=Pairs)


def dump(value: Any) -> str:
    """What :func:`parse` read, edited or not."""
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, Pairs):
        return "{" + ", ".join(f"{json.dumps(key)}: {dump(item)}" for key, item in value) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(dump, value)) + "]"
    return json.dumps(value)


NUMBERS = (
    "0", "-1", "1", "2", "3", "7", "0.5", "-0.0", "1.5", "1000", "30000", "1000000", "100000000", "2147483648",
    "9007199254740993", "9223372036854775807", "18446744073709551616", "1e30", "1e308", "1e999", "-1e999", "1e-320",
    "1" + "0" * 400, "1" * 5000,
)  # fmt: skip
TEXTS = (
    '""', '"x"', '"0"', '"nan"', '"inf"', '"avg"', '"gmm"', '"heat"', '"../../../etc/passwd"', '"/dev/zero"',
    r'"\u001b[2J\u001b]0;x\u0007"', r'"\ud800"', r'"\u0000"', r'"\u202e"', '"=1+1"', '"| a | b |"', '"<script>"',
    '"a\\nb"', '"' + "a" * 70_000 + '"',
)  # fmt: skip
OTHERS = (
    "null", "true", "false", "[]", "{}", "[[]]", "[null]", "[0, 0]", '{"": 0}', "NaN", "Infinity", "-Infinity",
    '{"$float": "nan"}', '{"$float": "x"}', '{"$float": "-inf"}', '{"$list": [1]}', '{"$map": [["a", 1]]}',
    '{"$energy": "msp", "settings": {}}', '{"$energy": "gmm", "settings": {}}',
    '{"$value": "Residual", "settings": {}}',
    "[" * 900 + "]" * 900, "[" * 100_000 + "]" * 100_000, '{"a":' * 5000 + "1" + "}" * 5000,
    "[" + "0," * 50_000 + "0]",
)  # fmt: skip


def hostile(rng: random.Random, old: Any, known: list[Any]) -> Any:
    """Something that should not stand where ``old`` stands, near to it or far."""
    choices: list[Any] = [Raw(rng.choice(group)) for group in (NUMBERS, TEXTS, OTHERS)]
    if isinstance(old, int | float) and not isinstance(old, bool):
        choices += [old + 1, old - 1, -old, old * 1000, float(old), str(old), [old], Raw(rng.choice(NUMBERS))]
    if isinstance(old, str):
        choices += [old + "x", old[:-1], old.upper(), [old], rng.choice(known), Raw(rng.choice(TEXTS))]
    if isinstance(old, bool):
        choices += [not old, int(old)]
    if isinstance(old, list) and old:
        choices += [old[:-1], old + old, old[::-1], type(old)()]
    return rng.choice(choices)


def places(value: Any, found: list[tuple[Any, int]]) -> list[tuple[Any, int]]:
    """Where a value stands: the list or object that holds it, and its number there; for all, at any depth."""
    if isinstance(value, list):
        for i, item in enumerate(value):
            found.append((value, i))
            places(item[1] if isinstance(value, Pairs) else item, found)
    return found


def edit_json(rng: random.Random, text: str) -> tuple[str, str]:
    """JSON with one to three edits, and what they were; where it cannot be parsed, it stays."""
    try:
        document = parse(text)
    except (ValueError, RecursionError):
        return text, "no JSON"
    done = []
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        everywhere = places(document, [])
        if not everywhere:
            break
        # Those near the top are few and matter most; lists of numbers are long.
        groups = [everywhere, [place for place in everywhere if isinstance(place[0], Pairs)], settings_of(document)]
        holder, i = rng.choice(rng.choice([group for group in groups if group]))
        done.append(
            edit_place(rng, holder, i, [item for holder, i in everywhere[:200] for item in [value_at(holder, i)]])
        )
    return dump(document), ", ".join(done)


def settings_of(document: Any) -> list[tuple[Any, int]]:
    """The places below what a detector calls its energy: settings, which say how large things are."""
    inner = [value for key, value in document if key == "energy"] if isinstance(document, Pairs) else []
    return [place for value in inner for place in places(value, [])]


def value_at(holder: Any, i: int) -> Any:
    return holder[i][1] if isinstance(holder, Pairs) else holder[i]


def edit_place(rng: random.Random, holder: Any, i: int, known: list[Any]) -> str:
    known = [item for item in known if isinstance(item, str)] or [""]
    if not isinstance(holder, Pairs):
        if rng.random() < 0.2:
            del holder[i]
            return f"without item {i}"
        holder[i] = hostile(rng, holder[i], known)
        return f"item {i} = {dump(holder[i])[:60]}"
    key, old = holder[i]
    kind = rng.random()
    if kind < 0.1:
        del holder[i]
        return f"without {key}"
    if kind < 0.2:
        holder[i] = (rng.choice([key + "x", key.upper(), "", "\x1b[31m", "__class__", rng.choice(known)]), old)
        return f"{key} is called {holder[i][0]!r}"
    new = hostile(rng, old, known)
    if kind < 0.3:
        holder.insert(i + rng.randrange(2), (key, new))
        return f"{key} twice, {dump(new)[:60]}"
    holder[i] = (key, new)
    return f"{key} = {dump(new)[:60]}"


# TOML

ASSIGNED = re.compile(r'(?P<key>[\w-]+) = (?P<value>"[^"\n]*"|\[[^\]\n]*\]|[\w.+-]+)')
TOML_OTHERS = (
    "[]", "[[]]", "{}", "nan", "-inf", "1979-05-27", "00:32:00", "'''a\nb'''", "[" * 500 + "]" * 500,
    "[" * 50_000 + "]" * 50_000, "0x7fffffffffffffff", "{a = " * 400 + "1" + "}" * 400, "a.b.c",
)  # fmt: skip
LINES = ("[[ood]]", "[id]", "[backbone]", "x = 1", "[contrast]", "= 1", '"" = 1', "[a" + ".a" * 2000 + "]", "\x1b[31m")


def edit_toml(rng: random.Random, text: str) -> tuple[str, str]:
    """TOML with one to three edits, and what they were."""
    done = []
    for _ in range(rng.choice([1, 1, 2, 3])):
        found = list(ASSIGNED.finditer(text))
        kind = rng.random()
        if not found or kind < 0.15:
            lines = text.splitlines()
            at, new = rng.randrange(len(lines) + 1), rng.choice([*LINES, *lines])
            text = "\n".join([*lines[:at], new, *lines[at:]]) + "\n"
            done.append(f"line {at}: {new[:40]!r}")
            continue
        place = rng.choice(found)
        key, value = place["key"], place["value"]
        if kind < 0.3:
            key = rng.choice([key + "x", key.upper(), '""', rng.choice(found)["key"]])
        elif kind < 0.4:
            key, value = "", ""
        elif kind < 0.5:
            value = f"{value}\n{key} = {value}"
        else:
            values = (*NUMBERS, *TEXTS, *TOML_OTHERS, "true", "false", *(other["value"] for other in found))
            value = rng.choice(values)
        new = f"{key} = {value}" if key else ""
        text = text[: place.start()] + new + text[place.end() :]
        done.append(f"{place['key']}: {new[:60]!r}")
    return text, ", ".join(done)
