"""The attack itself: it is the same on every run, its forged files are accepted, and it sees what it looks for."""

from __future__ import annotations

import os
import random
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.damage import BYTES, copied, damage_folder, files_of
from harness.documents import Pairs, dump, edit_json, edit_toml, parse
from harness.pool import run_here
from harness.routes import ROUTES, CommandError, Route, UnclearError, command
from harness.seals import SEALS, content_digest, get, put
from harness.tables import TABLES, markdown, write
from harness.targets import SUITE
from harness.tensors import edit_npy, edit_safetensors, pack, unpack
from harness.tries import Attack, Outcome, Plan, classify


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What an attack changes of its process is put back after each test."""
    monkeypatch.setenv("PATH", os.environ["PATH"])
    monkeypatch.setenv("HEAT_OOD_CANARY", "")
    monkeypatch.chdir(tmp_path)


# Changes


def test_changes_are_the_same_for_the_same_seed(built: Path, tmp_path: Path) -> None:
    seen = []
    for name in ("one", "two"):
        attack = Attack(built, 3, tmp_path / name)
        for number in range(60):
            change = attack.change(number)[2]
            sound = {f.name: f.read_bytes() for f in files_of(attack.scratch)}
            seen.append((number, change, sound))
    assert seen[:60] == seen[60:]


@pytest.mark.parametrize("change", BYTES, ids=lambda change: change.__name__)
def test_every_damage_of_bytes_does_something(change: Callable[..., bytes]) -> None:
    content, other = bytes(range(200)), bytes(range(200, 0, -1))
    changed = sum(change(random.Random(seed), content, other) != content for seed in range(50))
    assert changed > 40


def test_json_is_written_as_it_was_read() -> None:
    text = '{"a": [1, 2.5, null], "a": {"b": "\\u001b"}, "c": NaN}'
    assert dump(parse(text)) == text
    edits = {edit_json(random.Random(seed), text)[0] for seed in range(200)}
    assert len(edits) > 100
    assert any(edit.count('"a"') > 2 for edit in edits), "no key stands twice"
    assert any("[" * 900 in edit for edit in edits), "nothing is nested deep"


def test_edits_of_toml_and_tensors_change_them() -> None:
    assert len({edit_toml(random.Random(seed), SUITE)[0] for seed in range(100)} - {SUITE}) > 80
    content = pack({"x": ("F32", [2, 3], bytes(24)), "y": ("I64", [1], bytes(8))}, {"facts": "{}"})
    assert pack(*unpack(content)) == content
    assert len({edit_safetensors(random.Random(seed), content)[0] for seed in range(100)} - {content}) > 50
    import io

    import numpy as np

    out = io.BytesIO()
    np.save(out, np.zeros((3, 2), np.float32))
    assert len({edit_npy(random.Random(seed), out.getvalue())[0] for seed in range(100)}) > 30


def test_damage_of_folders_leaves_the_original(built: Path, tmp_path: Path) -> None:
    source = built / "store" / "samples"
    before = {f.name: f.read_bytes() for f in files_of(source)}
    for seed in range(60):
        folder = copied(source, tmp_path / "it")
        assert damage_folder(random.Random(seed), folder, source)
    assert {f.name: f.read_bytes() for f in files_of(source)} == before


# Seals


def harmless(folder: Path, file: str, key: str) -> None:
    """Another text where any is allowed."""
    document = parse((folder / file).read_text())
    assert isinstance(get(document, key), str), key
    put(document, key, "another")
    (folder / file).write_text(dump(document))


@pytest.mark.parametrize(("kind", "file", "key"), [("detector", "detector.json", "fingerprint")])
def test_a_forged_detector_is_not_known_for_one(built: Path, tmp_path: Path, kind: str, file: str, key: str) -> None:
    from heat_ood import Energy, FormatError

    folder = copied(built / kind / "gmm", tmp_path / "it")
    harmless(folder, file, key)
    with pytest.raises(FormatError):
        Energy.load(folder)
    SEALS[kind](folder)
    assert Energy.load(folder).fingerprint == "another"


def test_a_forged_store_is_not_known_for_one(built: Path, tmp_path: Path) -> None:
    from harness.routes import opened

    folder = copied(built / "store" / "samples", tmp_path / "it")
    harmless(folder, "manifest.json", "fingerprint")
    file = next(f for f in files_of(folder) if "avg" in f.name)
    file.write_bytes(file.read_bytes()[:-4] + b"\0\0\x80\x3f")
    SEALS["store"](folder)
    assert opened(folder, verify=True).fingerprint == "another"
    assert opened(folder, verify=True).avg[-1, -1] == 1.0


@pytest.mark.filterwarnings("ignore:The residual of:RuntimeWarning")
def test_a_forged_checkpoint_is_not_known_for_one(built: Path, tmp_path: Path) -> None:
    from harness.routes import resumed
    from harness.targets import Target
    from heat_ood import FormatError

    folder = copied(built / "checkpoint" / "0", tmp_path / "it")
    file = folder / "gmm.safetensors"
    tensors, metadata = unpack(file.read_bytes())
    kind, shape, data = tensors["best.0"]
    tensors["best.0"] = kind, shape, bytes(len(data))
    file.write_bytes(pack(tensors, metadata))
    if "sha256" in metadata:
        with pytest.raises(FormatError, match="checksum"):
            resumed(folder, Target("checkpoint", "0", folder), tmp_path)
    SEALS["checkpoint"](folder)
    assert resumed(folder, Target("checkpoint", "0", folder), tmp_path)


def test_a_digest_is_of_the_content_alone() -> None:
    one, two = parse('{"a": 1, "sha256": "x"}'), parse('{"sha256": "y", "a": 1}')
    assert isinstance(one, Pairs)
    assert content_digest(one) == content_digest(two)


# Outcomes


def raising(error: BaseException) -> Callable[[], list[float]]:
    def run() -> list[float]:
        raise error

    return run


def test_outcomes() -> None:
    from heat_ood import FormatError

    assert classify(lambda: [1.0, 2.0], [1.0, 2.0])[0] == "same"
    assert classify(lambda: [1.0, 2.1], [1.0, 2.0])[0] == "different"
    assert classify(lambda: [1.0], [1.0, 2.0])[0] == "different"
    wanted = {
        "refused": (FormatError("x"), CommandError("x"), FileNotFoundError(2, "no", "file")),
        "raw": (KeyError("x"), RecursionError(), UnclearError("x"), OSError("x"), RuntimeError("x")),
        "memory": (MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried")),
    }
    for outcome, errors in wanted.items():
        for error in errors:
            assert classify(raising(error), [])[0] == outcome, error


def test_commands_are_run_as_the_console_script_runs_them(built: Path, tmp_path: Path) -> None:
    assert "gmm" in command("methods")
    with pytest.raises(CommandError, match="error: "):
        command("info", tmp_path / "nothing")
    with pytest.raises(CommandError):
        command("info")


def misbehave(number: int) -> list[float]:
    match number:
        case 1:
            time.sleep(600)
        case 2:
            os.kill(os.getpid(), signal.SIGSEGV)
        case 3:
            return [float(len(bytearray(3 * 2**30)))]
        case 4:
            Path(os.environ["HEAT_OOD_CANARY"]).touch()
        case 5:
            some = bytearray(b"x") * (2**30 + 2**27)
            return [float(len(some) + len(some[:-1]))]
    return [1.0]


class Misbehaving(Attack):
    """Tries that do what a hostile file might bring the library to."""

    def choose(self, number: int) -> Any:
        _, rng, target, other = super().choose(number)
        route = Route("detector", "misbehave", lambda folder, target, tools: misbehave(number))
        plan = type("OnePlan", (Plan,), {"way": route})(number, 0, False)
        self.expected[f"0/{target.name}"] = [1.0]
        return plan, rng, target, other


def test_the_watch_sees_hangs_crashes_memory_and_programs(built: Path, tmp_path: Path) -> None:
    attack = Misbehaving(built, 0, tmp_path / "scratch")
    waiting = [outcome.outcome for outcome in run_here(attack, [1, 1], seconds=2)]
    assert waiting == ["hang", "hang"], "after the first one it goes on"
    found = {outcome.number: outcome.outcome for outcome in run_here(attack, [0, 2, 3, 4, 5, 6], seconds=120)}
    assert found == {0: "same", 2: "crash", 3: "memory", 4: "code ran", 5: "memory", 6: "same"}


# Tables


def test_tables_go_into_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- files -->\nold\n<!-- /files -->\nafter\n")
    rows = [vars(Outcome(7, "store", "open", False, True, "x", "flip", "raw", "KeyError: 'a|b'"))]
    write(page, {"files": rows}, None)  # type: ignore[arg-type]
    text = page.read_text()
    assert text.startswith("before\n<!-- files -->\n")
    assert text.endswith("<!-- /files -->\nafter\n")
    assert "old" not in text
    assert re.search(r"\| raw \| store \| `open` \| 1 \| KeyError: 'a\\\|b' \| 7 \|", text)
    assert markdown(["a"], [[1]]) == "| a |\n|---|\n| 1 |\n"
    assert len(TABLES) == 4
    assert len({(route.kind, route.name) for route in ROUTES}) == len(ROUTES)
