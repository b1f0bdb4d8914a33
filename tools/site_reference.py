"""The pages of the API reference, found by what each room exports: no list of names is kept."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from rooms import ORDER, PACKAGE, imports

__all__ = ["exported", "modules", "page_of", "pages"]

LEFT_OUT = ("cli",)
"""Rooms that nobody imports from: ``heat-ood --help`` is the reference of the command line."""
FRONT = PACKAGE.name


def modules(package: Path = PACKAGE) -> dict[str, Path]:
    """The modules that a user may import, with their files: the front door, the rooms, and what is public in them."""
    found = {FRONT: package / "__init__.py"}
    for room in ORDER:
        folder, file = package / room, package / f"{room}.py"
        if room in LEFT_OUT or not (folder.exists() or file.exists()):
            continue
        found[f"{FRONT}.{room}"] = file if file.exists() else folder / "__init__.py"
        for inner in sorted(folder.glob("[!_]*.py")):
            found[f"{FRONT}.{room}.{inner.stem}"] = inner
    return found


def exported(file: Path) -> list[str]:
    """``__all__`` of a file."""
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and [getattr(target, "id", "") for target in node.targets] == ["__all__"]:
            return [str(name) for name in ast.literal_eval(node.value)]
    return []


def page_of(module: str) -> str:
    """The page of a module, as an address below docs."""
    return f"reference/{module.removeprefix(f'{FRONT}.')}.md"


@cache
def pages(package: Path = PACKAGE) -> dict[str, str]:
    """Markdown by address: each module with its names, those that come from another room as links to it."""
    known = modules(package)
    return {page_of(module): page(module, known, package) for module in known}


def page(module: str, known: dict[str, Path], package: Path) -> str:
    file = known[module]
    homes = {one.name: f"{FRONT}.{one.room}" for one in imports(file, package) if not one.inner}
    parts = [f"::: {module}\n    options:\n      heading_level: 1\n      members: false"]
    links = []
    for name in exported(file):
        whole, home = f"{module}.{name}", homes.get(name, module)
        if whole in known:
            links.append(f"- [`{whole}`]({Path(page_of(whole)).name})")
        elif home != module and name in exported(known[home]):
            links.append(f"- [`{name}`]({Path(page_of(home)).name}#{home}.{name}), of `{home}`")
        else:
            parts.append(f"::: {whole}")
    return "\n\n".join([parts[0], "\n".join(links), *parts[1:]]) + "\n"
