"""Files that are not what they should be are refused in one line, in no time and in little memory."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

import heat_ood
from heat_ood.errors import FormatError
from heat_ood.files import Format, part_of, read, restored, sweep_all, write_tensors
from peaks import PEAK

PAGES = Format("heat-ood pages", 2)
HANG = 60
"""Seconds after which a call counts as hanging."""


def listen(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(path))


PLACES: dict[str, Callable[[Path], Any]] = {
    "a pipe": os.mkfifo,
    "a folder": os.mkdir,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a loop": lambda path: path.symlink_to(path),
    "a socket": listen,
}


@pytest.mark.parametrize("kind", PLACES)
def test_what_is_no_file_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.chdir(tmp_path)
    PLACES[kind](tmp_path / "a.json")
    with pytest.raises(FormatError, match=r"a\.json is (not a regular file|a link that is not followed)\. Pass a page"):
        PAGES.read(tmp_path / "a.json", "Pass a page.", "Print it again.")


def test_links_are_followed_where_they_may_be(tmp_path: Path) -> None:
    (tmp_path / "it").write_bytes(b"text")
    (tmp_path / "link").symlink_to(tmp_path / "it")
    assert read(tmp_path / "link") == b"text"
    with pytest.raises(FormatError, match="link"):
        read(tmp_path / "link", follow=False)
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "none", follow=False)
    assert read(tmp_path / "it", 4, follow=False) == b"text"
    with pytest.raises(FormatError, match="has 4 bytes, and at most 3"):
        read(tmp_path / "it", 3)


SCRIPT = f"""{PEAK}
import resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_AS, (2 * 2**30,) * 2)
from heat_ood.errors import FormatError
from heat_ood.files import Format, read
try:
    Format("heat-ood pages", 2).read(Path(sys.argv[1]), "Pass a page.", "Print it again.")
except FormatError as error:
    print(error)
try:
    print(len(read(Path(sys.argv[1]))))
except FormatError as error:
    print(error)
print(peak() // 1024)
"""


@pytest.mark.parametrize(("size", "why"), [(5 * 2**30, "5,368,709,120 bytes"), (90 * 2**20, "too many values")])
def test_a_large_file_is_refused_before_it_takes_memory(tmp_path: Path, size: int, why: str) -> None:
    file = tmp_path / "a.json"
    with open(file, "wb") as out:
        if size < 2**30:
            out.write(b"[" + b"{}," * (size // 3) + b"0]")
        out.truncate(size)
    environment = os.environ | {"PYTHONPATH": str(Path(heat_ood.__file__).parents[1])}
    command = [sys.executable, "-c", SCRIPT, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=HANG, check=False)
    first, second, most = done.stdout.splitlines()
    assert why in first, done.stderr
    assert "more than there is memory for" in second if size > 2**30 else second == str(size)
    assert int(most) < 600


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"format": "heat-ood pages", "version": 1, "version": 2}', "the key 'version' twice"),
        ('{"format": "heat-ood pages", "version": 1, "x": {"a": 1, "a": 1}}', "the key 'a' twice"),
        ('{"format": "heat-ood pages", "version": 1, "x": NaN}', "NaN is no number"),
        ('{"format": "heat-ood pages", "version": 1, "x": -Infinity}', "-Infinity is no number"),
        ('{"format": "heat-ood pages", "version": ' + "1" * 5000 + "}", "not JSON"),
        ('{"x": ' * 100_000, "not JSON"),
    ],
)
@pytest.mark.parametrize("as_bytes", [False, True])
def test_json_that_we_do_not_write(text: str, why: str, as_bytes: bool) -> None:
    with pytest.raises(FormatError, match=why):
        PAGES.parse(text.encode() if as_bytes else text, "It", "Pass a page.", "Print it again.")


@dataclass(frozen=True)
class Loose:
    """A number, and anything."""

    number: float = 0.0
    rest: Any = None


def test_values_that_break_a_reader() -> None:
    deep: Any = 0
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(FormatError, match="it is nested too deep"):
        restored(Loose, {"rest": deep}, "it")
    with pytest.raises(FormatError, match=r"it\.number is 1000.* not a number"):
        restored(Loose, {"number": 10**400}, "it")
    with pytest.raises(FormatError) as caught:
        restored(Loose, {"number": list(range(10**6))}, "it")
    assert len(str(caught.value)) < 200


# Parts, and tensors


def test_parts_of_chosen_files_are_swept_and_nothing_else(tmp_path: Path) -> None:
    for name in (".a1.bin.0123456789ab.part", "a2.bin.part", ".b.bin.0123456789ab.part", "a3.bin", "a.part.txt"):
        (tmp_path / name).write_text("")
    (tmp_path / ".a4.bin.0123456789ab.part").symlink_to(tmp_path / "a3.bin")
    sweep_all(tmp_path, lambda name: (part_of(name) or "").startswith("a"))
    left = {file.name for file in tmp_path.iterdir()}
    assert left == {".b.bin.0123456789ab.part", "a3.bin", "a.part.txt", ".a4.bin.0123456789ab.part"}
    sweep_all(tmp_path, lambda name: True)
    assert (tmp_path / "a3.bin").exists(), "what is no part is not removed, whatever is chosen"


def test_tensors_that_share_memory_are_written(tmp_path: Path) -> None:
    whole = torch.arange(6.0).reshape(2, 3)
    tensors = {"whole": whole, "same": whole, "row": whole[1], "turned": whole.T, "empty": torch.empty(0, 2)}
    write_tensors(tmp_path / "it", tensors, {"key": "value"})
    found = load_file(tmp_path / "it")
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())
    with safe_open(tmp_path / "it", "pt") as file:
        assert file.metadata() == {"key": "value"}


FULL = """
import resource, signal, sys
from pathlib import Path
import torch
from heat_ood.files import write_tensors
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    write_tensors(Path(sys.argv[1]), {"large": torch.zeros(10**6)})
except OSError as error:
    print(error.errno, error.filename)
"""


def test_what_the_file_system_refuses_is_its_own_error(tmp_path: Path) -> None:
    """The limit on a file's size stands for a full disk: the kernel refuses the write itself."""
    environment = os.environ | {"PYTHONPATH": str(Path(heat_ood.__file__).parents[1])}
    command = [sys.executable, "-c", FULL, str(tmp_path / "it")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=HANG, check=False)
    assert done.stdout == f"27 {tmp_path / 'it'}\n", done.stderr
    assert not list(tmp_path.iterdir())
