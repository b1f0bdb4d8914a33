"""The rooms of the library and who imports whom, read from the code: ``python tools/rooms.py`` prints the graph.

Order is from left to right: a room may import those before it, never those after it, in no way: not at the top of a
file, not inside a function, not for a type, not by a string.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).parents[1] / "src" / "heat_ood"
ORDER = (
    *("errors", "deprecation", "registry", "files", "progress", "allocation", "metrics"),
    *("images", "models", "features", "energies", "residual", "heat", "selection", "evaluation", "guarding"),
    *("results", "benchmarks", "report", "plot", "demo", "export", "serving", "scale", "cli"),
)
"""All rooms, from left to right: a folder is a room, and so is a file beside the folders."""
ROOT = ("__init__", "__main__")
"""The front door, which is of no room: it opens all of them, and no room goes through it but for the version."""


class Import(NamedTuple):
    """One import of a file: of which room, by which path within it, which name."""

    file: Path
    line: int
    room: str
    inner: str
    name: str


def room_of(file: Path, package: Path = PACKAGE) -> str:
    """The room that a file lies in."""
    return file.relative_to(package).parts[0].removesuffix(".py")


def imports(file: Path, package: Path = PACKAGE) -> Iterator[Import]:
    """All imports of the package's own modules in a file, wherever they stand, strings that name one among them."""
    here = file.relative_to(package).parts[:-1]
    tree = ast.parse(file.read_text(encoding="utf-8"))
    words = docstrings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            if node.level:
                base = [*here[: len(here) - node.level + 1], *(node.module or "").split(".")]
            elif (node.module or "").split(".")[0] == package.name:
                base = (node.module or "").split(".")[1:]
            else:
                continue
            base = [part for part in base if part]
            for alias in node.names:
                whole = base or [alias.name]
                yield Import(file, node.lineno, whole[0], ".".join(whole[1:]), alias.name)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == package.name:
                    _, *parts = alias.name.split(".")
                    yield Import(file, node.lineno, parts[0] if parts else "__init__", ".".join(parts[1:]), alias.name)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in words:
            head, _, rest = node.value.partition(":")[0].partition(".")
            parts = rest.split(".")
            if head == package.name and parts[0] in ORDER and all(part.isidentifier() for part in parts):
                yield Import(file, node.lineno, parts[0], ".".join(parts[1:]), node.value)


def docstrings(tree: ast.AST) -> set[int]:
    """The strings that stand alone: they say something, and import nothing."""
    return {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def all_imports(package: Path = PACKAGE) -> list[Import]:
    """Of all files but those of the front door."""
    files = [file for file in sorted(package.rglob("*.py")) if room_of(file, package) not in ROOT]
    return [found for file in files for found in imports(file, package)]


def graph(package: Path = PACKAGE) -> dict[str, set[str]]:
    """From each room to the rooms that it imports."""
    places = [path for path in package.iterdir() if path.is_dir() or path.suffix == ".py"]
    rooms = [path.stem for path in places if not path.name.startswith("__")]
    found: dict[str, set[str]] = {room: set() for room in sorted(rooms)}
    for one in all_imports(package):
        room = room_of(one.file, package)
        if one.room != room and one.room in found:
            found[room].add(one.room)
    return found


def main() -> None:
    known = graph()
    for room in ORDER:
        sys.stdout.write(f"{room}: {', '.join(sorted(known.get(room, ()), key=ORDER.index)) or 'nothing of ours'}\n")


if __name__ == "__main__":
    main()
