"""What mkdocs cannot do by itself: the API reference by discovery, pages of the repository, formulas without a network.

Links are written as they are right in the repository, to ``../src/heat_ood/energies/_vim.py#VirtualLogit`` or to
``../CONTRIBUTING.md``; on the site they lead to the page that shows the same.
"""

from __future__ import annotations

import html
import posixpath
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

from site_reference import modules, page_of, pages

ROOT = Path(__file__).parents[1]
REFERENCE, EXAMPLES, PROJECT = "API reference", "Examples", "Project"
"""Sections of the navigation that are filled here."""
ROOT_PAGES = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
"""Files beside the README that the site shows, where they are there."""

# Pages


def on_config(config: Any) -> Any:
    """The navigation ends with what is found: the reference by room, examples, and the root's pages."""
    *_, last = config.nav
    last[PROJECT] += root_pages().values()
    if example_pages():
        config.nav.insert(-1, {EXAMPLES: [{Path(file).name: page} for file, page in example_pages().items()]})
    config.nav.insert(-1, {REFERENCE: [{module: page_of(module)} for module in modules()]})
    return config


def on_files(files: Files, config: Any) -> Files:
    """Pages that are no files of docs."""
    texts = pages() | {page: shown(ROOT / file) for file, page in repository_pages().items()}
    for page, text in texts.items():
        files.append(File.generated(config, page, content=text))
    return files


def root_pages() -> dict[str, str]:
    """The address of each file of the root that the site shows."""
    return {file: file.lower() for file in ROOT_PAGES if (ROOT / file).exists()}


def example_pages() -> dict[str, str]:
    """The address of each example, their README first."""
    found = [file.relative_to(ROOT).as_posix() for file in sorted((ROOT / "examples").glob("*.py"))]
    first = ["examples/README.md"] if (ROOT / "examples/README.md").exists() else []
    return {file: file.removesuffix(".py").removesuffix(".md") + ".md" for file in (*first, *found)}


def repository_pages() -> dict[str, str]:
    return root_pages() | example_pages()


def shown(file: Path) -> str:
    """A file as a page: a script as its code."""
    text = file.read_text(encoding="utf-8")
    return text if file.suffix == ".md" else f"# {file.name}\n\n```python\n{text}```\n"


# Links

LINK = re.compile(r"(?<!!)\[([^][]*)\]\((?!https?:|mailto:|#)([^)\s#]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links that are right in the repository, right on the site."""
    src = page.file.src_uri
    if src in pages():
        return markdown
    where = next((file for file, name in repository_pages().items() if name == src), f"docs/{src}")
    return LINK.sub(lambda found: linked(found[1], found[2], found[3] or "", where, src), markdown)


def linked(text: str, target: str, anchor: str, where: str, src: str) -> str:
    """A link of the file ``where`` as it stands on the page ``src``; the text alone where the site has no page."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(where), target))
    if path.startswith("docs/"):
        path = path.removeprefix("docs/")
    elif path.startswith("src/heat_ood/"):
        module = ".".join(["heat_ood", path.split("/")[2].removesuffix(".py")]).removesuffix(".__init__")
        path, anchor = page_of(module), f"#{module}.{anchor[1:]}" if anchor else ""
    elif path in repository_pages():
        path = repository_pages()[path]
    elif path == "README.md":
        path = "index.md"
    else:
        return text
    return f"[{text}]({posixpath.relpath(path, posixpath.dirname(src) or '.')}{anchor})"


# Formulas

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
SPACING = (
    (r"(?<!<msub>)(?<!<msup>)(<mi>(?:log|exp|tanh|cos|sin)</mi>)(?=<m(?!o))", r'\1<mspace width="0.167em" />'),
    (
        r"(<mo[^>]*>(?:&#x0003D;|=|&#x00028;|\(|,|&#x0002C;)</mo>)<mo>&#x02212;</mo>",
        r'\1<mo form="prefix">&#x02212;</mo>',
    ),
    (r"<mo>(max|min)</mo>", r'<mo lspace="0.1em" rspace="0.167em">\1</mo>'),
)
"""What the converter leaves out: a space after a function's name, none after a sign."""


def on_page_content(text: str, page: Any, **_: Any) -> str:
    """Formulas as MathML, which browsers show by themselves."""
    return FORMULA.sub(lambda found: mathml(found[2], found[1] == "div", page.file.src_uri), text)


def mathml(latex: str, block: bool, where: str) -> str:
    """A formula; what the converter does not know is an error."""
    formula = html.unescape(latex).strip().replace(r"\arg", r"\mathrm{arg}\,")
    found = convert(formula, display="block" if block else "inline")
    if "\\" in found or "&#x0005C;" in found:
        raise PluginError(f"{where}: the formula {formula} cannot be shown. Write it with simpler commands.")
    for pattern, replacement in SPACING:
        found = re.sub(pattern, replacement, found)
    return found
