"""The docs say what was measured, of every method; their links lead somewhere, and the site is built of them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import griffe
import numpy as np
import pytest

from heat_ood.registry import METHODS, Method
from heat_ood.results import Results

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
sys.path.insert(0, str(ROOT / "tools"))
import draw_rooms  # noqa: E402
import methods_page  # noqa: E402
import paper_page  # noqa: E402
import readme  # noqa: E402
import renew_rows  # noqa: E402
import rooms  # noqa: E402
import site_docstrings  # noqa: E402
import site_hooks  # noqa: E402
import site_reference  # noqa: E402

PAGES = sorted(DOCS.rglob("*.md"))
WRITTEN = [page for page in PAGES if "results" not in page.parts or page.name == "README.md"]
"""All but what benchmarks print."""
METHODS_OF_OURS = methods_page.ours()
TEXT = (DOCS / "methods.md").read_text(encoding="utf-8")
NETS = ("cifar10", "cifar100")


# Numbers


def section(name: str, text: str = TEXT) -> str:
    """What stands below a method's heading."""
    return re.split(r"^##", text.partition(f"### `{name}`\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


@cache
def stored(file: str) -> Any:
    return json.loads((DOCS / "results" / file).read_text(encoding="utf-8"))


def averages(net: str, row: str) -> list[dict[str, float]]:
    """What was measured, one a run, read without any code of ours."""
    for experiment in ("main", "correction"):
        results = stored(f"shared-{net}/{experiment}/results.json")
        entries = [e for e in results["entries"] if e["name"] == row and e["kind"] != "paper"]
        if found := [run["evaluation"]["average"] for entry in entries for run in entry["runs"]]:
            return found
    earlier = stored("methods.json")
    return [runs[row]["average"] for key, runs in earlier.items() if key.startswith(f"{net}/") and row in runs]


def printed(net: str, row: str) -> str:
    found = averages(net, row)
    return " / ".join(f"{100 * np.mean([a[metric] for a in found]):.1f}" for metric in ("fpr_at_95_id", "auroc"))


@pytest.mark.parametrize("name", METHODS_OF_OURS)
def test_every_method_is_explained(name: str) -> None:
    text = re.sub(r"<!-- facts -->.*<!-- /facts -->", "", section(name), flags=re.DOTALL)
    assert re.search(r"\$\$\n.+\n\$\$", text, re.DOTALL), "no formula"
    assert len(re.sub(r"\$\$.*?\$\$", "", text, flags=re.DOTALL).split()) > 15, "no paragraph"
    assert "ost" in text, "no cost"


@pytest.mark.parametrize("name", METHODS_OF_OURS)
def test_the_numbers_of_a_method_are_the_measured_ones(name: str) -> None:
    (line,) = [line for line in section(name).splitlines() if f"#{METHODS[name].make.__name__})" in line]
    (short,) = [line for line in TEXT.splitlines() if line.startswith(f"| [`{name}`](#{name}) |")]
    for net in NETS:
        known = averages(net, "HEAT" if name == "heat" else name)
        wanted = printed(net, "HEAT" if name == "heat" else name) if known else "not measured yet"
        assert f"| {wanted} |" in line
        assert f"| {wanted} |" in short


@pytest.mark.parametrize("row", ["gmm, corrected", "vim, corrected", "knn, smooth", "knn, corrected"])
def test_so_are_those_of_its_other_forms(row: str) -> None:
    name, _, form = row.partition(", ")
    assert f"| … {form} |  |  | {' | '.join(printed(net, row) for net in NETS)} |" in section(name)


def test_the_methods_page_is_current() -> None:
    assert methods_page.differences() == [], "run python tools/methods_page.py"


def test_another_number_on_the_methods_page_would_be_found(tmp_path: Path) -> None:
    shutil.copytree(DOCS, tmp_path / "docs", ignore=shutil.ignore_patterns("*.png", "*.html"))
    assert methods_page.differences(tmp_path) == []
    page = tmp_path / methods_page.PAGE
    page.write_text(TEXT.replace(printed("cifar10", "vim"), "1.0 / 99.0", 1))
    (tmp_path / methods_page.FRONT).write_text((DOCS / "index.md").read_text().replace("(methods.md#vim)", "(x.md)"))
    assert methods_page.differences(tmp_path) == [str(methods_page.PAGE), str(methods_page.FRONT)]


def test_a_new_method_needs_its_paragraph_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "fresh", Method(METHODS["msp"].make, "a new one", {}))
    nets = methods_page.networks()
    with pytest.raises(SystemExit, match="0 sections on fresh"):
        methods_page.page(TEXT, nets)
    text = methods_page.page(TEXT + "\n### `fresh`\n\nIt is new.\n", nets)
    assert "not measured yet" in section("fresh", text)
    assert "It is new." in section("fresh", text)
    assert methods_page.page(text, nets) == text
    assert "| [`fresh`](#fresh) | logits | no | not measured yet | – | not measured yet | – |" in text


def test_a_section_on_no_method_is_refused() -> None:
    with pytest.raises(SystemExit, match="no method"):
        methods_page.sections(TEXT + "\n### `gone`\n")


def test_methods_of_others_need_no_section(monkeypatch: pytest.MonkeyPatch) -> None:
    other = type("Other", (METHODS["msp"].make,), {"__module__": "somewhere"})
    monkeypatch.setitem(METHODS, "other", Method(other, "not ours", {}))
    assert "other" not in methods_page.ours()


def test_the_readme_and_its_picture_show_the_results() -> None:
    assert readme.differences(readme.stored()) == [], "run python tools/readme.py"


def test_another_number_in_the_readme_would_be_found(tmp_path: Path) -> None:
    for file in (readme.FEW, readme.FULL, readme.PICTURE):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_bytes((ROOT / file).read_bytes())
    found = readme.stored()
    assert readme.differences(found, tmp_path) == []
    text = (tmp_path / readme.FEW).read_text(encoding="utf-8")
    (line,) = [line for line in text.splitlines() if line.startswith("| **HEAT** |")]
    (tmp_path / readme.FEW).write_text(text.replace(line, line.replace("±", "+")), encoding="utf-8")
    assert readme.differences(found, tmp_path) == [str(readme.FEW)]
    readme.draw([found[0]], tmp_path / readme.PICTURE)
    (tmp_path / readme.FULL).unlink()
    expected = {str(readme.FEW), str(readme.FULL)} | ({str(readme.PICTURE)} if len(found) > 1 else set())
    assert set(readme.differences(found, tmp_path)) == expected


# The paper's claims


def test_the_table_of_claims_shows_the_results() -> None:
    assert paper_page.differences() == [], "run python tools/paper_page.py"


def test_another_number_in_the_table_of_claims_would_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(DOCS, tmp_path / "docs", ignore=shutil.ignore_patterns("*.png", "*.html"))
    shutil.copytree(ROOT / "tools", tmp_path / "tools")
    monkeypatch.setattr(paper_page, "ROOT", tmp_path)
    assert paper_page.differences() == []
    page = tmp_path / paper_page.PAGE
    page.write_text(page.read_text(encoding="utf-8").replace("gmm 53.2 / 88.7", "gmm 50.0 / 90.0"), encoding="utf-8")
    assert paper_page.differences() == [str(paper_page.PAGE)]


# The picture of the rooms


def test_the_picture_of_the_rooms_is_that_of_the_code() -> None:
    assert draw_rooms.differences() == [], "run python tools/draw_rooms.py"


def test_the_picture_says_which_graph_it_shows(tmp_path: Path) -> None:
    known = {room: set(rooms.ORDER[: i and 1]) for i, room in enumerate(rooms.ORDER)}
    draw_rooms.draw(known, tmp_path / draw_rooms.PICTURE)
    assert draw_rooms.drawn_graph(tmp_path / draw_rooms.PICTURE) == draw_rooms.plain(known)
    assert draw_rooms.differences(tmp_path) == [str(draw_rooms.PICTURE)]
    assert draw_rooms.differences(tmp_path / "nowhere") == [str(draw_rooms.PICTURE)]


def test_arrows_that_follow_from_others_are_left_out() -> None:
    known = {"a": set[str](), "b": {"a"}, "c": {"a", "b"}}
    assert draw_rooms.arrows(known) == {"a": set(), "b": {"a"}, "c": {"b"}}
    assert [draw_rooms.level(room, known) for room in known] == [0, 1, 2]


def test_the_architecture_page_names_every_room() -> None:
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE) == list(rooms.ORDER)


# Prose and links


def prose(text: str) -> Iterator[str]:
    """Lines that are neither code, nor of a table, nor a mark, nor a single link."""
    text = re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.MULTILINE | re.DOTALL)
    for line in text.splitlines():
        alone = re.fullmatch(r"\s*(- )?(!?\[[^\]]*\]\(\S+\)|<?https?://\S+>?)[.,;·]?\s*", line)
        if not line.startswith(("    ", "|", "<!--")) and not alone:
            yield line


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(DOCS)))
def test_prose_is_at_most_a_hundred_characters_wide(page: Path) -> None:
    assert [line for line in prose(page.read_text(encoding="utf-8")) if len(line) > 100] == []


def test_long_lines_are_seen() -> None:
    text = f"{'a' * 101}\n\n```\n{'b' * 101}\n```\n\n| {'c' * 101} |\n\n    {'d' * 101}\n\n[{'e' * 101}](f.md)\n"
    assert [line[0] for line in prose(text) if len(line) > 100] == ["a"]


def slug(heading: str) -> str:
    """The anchor of a heading, on GitHub as on the site."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def broken(file: Path) -> list[str]:
    """The links of a Markdown file that lead nowhere in the repository."""
    text = re.sub(r"^( *)```.*?^\1```$", "", file.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    found = []
    for target in re.findall(r"\]\((?!https?:|mailto:)([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        place = (file.parent / path).resolve() if path else file
        if not place.exists():
            found.append(target)
        elif anchor and place.suffix == ".md":
            headings = re.findall(r"^#+ (.*)$", place.read_text(encoding="utf-8"), re.MULTILINE)
            found += [target] if anchor not in map(slug, headings) else []
        elif anchor and f"class {anchor}(" not in place.read_text(encoding="utf-8"):
            found.append(target)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_links_lead_somewhere(page: Path) -> None:
    assert broken(page) == []


def test_links_that_lead_nowhere_are_seen(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text("class There(Energy): ...")
    (tmp_path / "b.md").write_text("# Far away\n")
    (tmp_path / "a.md").write_text(
        "# Here\n\n[x](b.md#far-away) [x](#here) [x](code.py#There) [x](c.md) [x](b.md#near) [x](code.py#Gone)\n"
    )
    assert broken(tmp_path / "a.md") == ["c.md", "b.md#near", "code.py#Gone"]


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(DOCS)))
def test_scripts_that_are_named_are_there(page: Path) -> None:
    named = re.findall(r"python (\w+/\w+\.py)", " ".join(page.read_text(encoding="utf-8").split()))
    assert [script for script in named if not (ROOT / script).exists()] == []


@pytest.mark.parametrize("anchor", ["what-was-seen-beside-ood-numbers", "other-networks-and-text"])
def test_anchors_that_the_readme_links_to_stay(anchor: str) -> None:
    assert anchor in map(slug, re.findall(r"^#+ (.*)$", (DOCS / "beyond.md").read_text("utf-8"), re.MULTILINE))


# What the site is made of


@cache
def package() -> griffe.Module:
    found = griffe.load("heat_ood", search_paths=[ROOT / "src"])
    assert isinstance(found, griffe.Module)
    return found


def docstring(text: str, name: str = "energies._vim.VirtualLogit") -> str:
    return site_docstrings.markdown(text, package()[name])


def test_formulas_of_docstrings_become_dollars() -> None:
    text = "A. :math:`a\nb`\n\n.. math:: x\n    + y\n\nMore.\n\n.. math::\n    z\n"
    assert docstring(text) == "A. $a b$\n\n$$\nx + y\n$$\n\n\nMore.\n\n$$\nz\n$$\n\n"


def test_roles_of_docstrings_become_links() -> None:
    assert 'identifier="heat_ood.energies._vim.VirtualLogit"' in docstring(":class:`VirtualLogit`")
    assert 'identifier="heat_ood.energies._vim.VirtualLogit.outside"' in docstring(":meth:`outside`")
    assert "<code>KINDS</code>" in docstring(":data:`~heat_ood.features.KINDS`")
    assert "<code>Elsewhere.x</code>" in docstring(":attr:`Elsewhere.x`")


def test_headings_of_docstrings_are_those_that_griffe_knows() -> None:
    text = "What.\n\nArgs:\n    a: b.\n\nExample:\n    >>> 1\n\nReferences:\n    Somebody,\n    somewhere.\n"
    known = docstring(text)
    assert "\nExamples:\n" in known
    assert "\nArgs:\n" in known
    assert "*Reference:* Somebody, somewhere.\n" in known
    assert "\nAttributes:\n" in docstring(text, "errors.Argument")


def test_formulas_become_mathml() -> None:
    page = '<p><span class="arithmatex">\\(a &lt; b\\)</span></p><div class="arithmatex">\\[\nc\n\\]</div>'
    found = site_hooks.on_page_content(page, PageOf("a.md"))
    assert found.count("<math") == 2
    assert "arithmatex" not in found
    assert 'display="block"' in found


def test_a_formula_that_cannot_be_shown_is_an_error() -> None:
    with pytest.raises(site_hooks.PluginError, match=r"a\.md: the formula \\nosuch"):
        site_hooks.mathml(r"\nosuch x", True, "a.md")


class PageOf(NamedTuple):
    """As much of a page as the hooks ask for."""

    src_uri: str

    @property
    def file(self) -> PageOf:
        return self


@pytest.mark.parametrize(
    ("page", "link", "expected"),
    [
        ("a.md", "[x](b.md#c)", "[x](b.md#c)"),
        ("a/b.md", "[x](../c.md)", "[x](../c.md)"),
        ("a.md", "[x](../src/heat_ood/energies/_vim.py#Y)", "[x](reference/energies.md#heat_ood.energies.Y)"),
        ("a/b.md", "[x](../../src/heat_ood/files.py)", "[x](../reference/files.md)"),
        ("a.md", "[x](../src/heat_ood/__init__.py)", "[x](reference/heat_ood.md)"),
        ("a.md", "[x](../CONTRIBUTING.md#y)", "[x](contributing.md#y)"),
        ("contributing.md", "[x](docs/a.md), [y](CHANGELOG.md)", "[x](a.md), [y](changelog.md)"),
        ("a.md", "[x](../tests/test_docs.py)", "x"),
        (
            "a.md",
            "[x](https://example.org/a.md) ![y](images/z.png)",
            "[x](https://example.org/a.md) ![y](images/z.png)",
        ),
    ],
)
def test_links_of_the_repository_lead_to_pages_of_the_site(page: str, link: str, expected: str) -> None:
    assert site_hooks.on_page_markdown(link, PageOf(page)) == expected


def test_the_reference_is_found_by_discovery(tmp_path: Path) -> None:
    package = tmp_path / "heat_ood"
    (package / "features").mkdir(parents=True)
    (package / "__init__.py").write_text('from .errors import Wrong\n__all__ = ["Wrong"]\n')
    (package / "errors.py").write_text('__all__ = ["Wrong", "fail"]\n')
    (package / "features" / "__init__.py").write_text('from . import maps\n__all__ = ["maps"]\n')
    (package / "features" / "maps.py").write_text('__all__ = ["Map"]\n')
    (package / "features" / "_inner.py").write_text('__all__ = ["hidden"]\n')
    found = site_reference.pages(package)
    names = {page: re.findall(r"^::: heat_ood\.?(\S*)$", text, re.MULTILINE) for page, text in found.items()}
    assert names == {
        "reference/heat_ood.md": [""],
        "reference/errors.md": ["errors", "errors.Wrong", "errors.fail"],
        "reference/features.md": ["features"],
        "reference/features.maps.md": ["features.maps", "features.maps.Map"],
    }
    assert "[`Wrong`](errors.md#heat_ood.errors.Wrong)" in found["reference/heat_ood.md"]
    assert "(features.maps.md)" in found["reference/features.md"]


# The site


class Page(HTMLParser):
    """The anchors, links, and things that a page loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids, self.links, self.loads = set[str](), list[str](), list[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        self.ids |= {value for key in ("id", "name") if (value := known.get(key))}
        if tag == "a" and known.get("href"):
            self.links.append(str(known["href"]))
        if tag in ("script", "img", "link", "iframe") and (what := known.get("src") or known.get("href")):
            self.loads.append(what)


def read_site(folder: Path) -> dict[Path, Page]:
    """The pages that mkdocs made; the one for what is not found has links of its own kind."""
    texts = {file: file.read_text(encoding="utf-8") for file in folder.rglob("*.html") if file.name != "404.html"}
    return {file: Page(text) for file, text in texts.items() if '<article class="md-content' in text}


def dead_links(pages: dict[Path, Page]) -> list[str]:
    found = []
    for file, page in pages.items():
        for link in page.links:
            path, _, anchor = unquote(link).partition("#")
            if re.match(r"(https?|mailto|data|javascript):", link):
                continue
            place = (file.parent / path).resolve() if path else file
            known = pages.get(place)
            if not place.exists() or (anchor and known is not None and anchor not in known.ids):
                found.append(f"{file.name}: {link}")
    return found


def fetched(pages: dict[Path, Page]) -> list[str]:
    """What pages would load from elsewhere."""
    return [f"{file.name}: {what}" for file, page in pages.items() for what in page.loads if "//" in what[:8]]


def unreachable(site: Path, pages: dict[Path, Page]) -> list[str]:
    """Methods whose formula, numbers and class are not two clicks from the front page."""
    front, text = pages[site / "index.html"], (site / "methods.html").read_text(encoding="utf-8")
    found = []
    for name in METHODS_OF_OURS:
        whole = re.search(rf'<h3 id="{name}">.*?(?=<h[123] id=|</article>)', text, re.DOTALL)
        part = whole[0] if whole else ""
        numbers = re.search(r"\d+\.\d / \d+\.\d|not measured yet", part)
        links = [link.partition("#") for link in Page(part).links if link.startswith("reference/")]
        there = [at for path, _, at in links if (page := pages.get(site / path)) is not None and at in page.ids]
        cls = [at for at in there if at.endswith(f".{METHODS[name].make.__name__}")]
        if f"methods.html#{name}" not in front.links or not cls or not numbers or "<math" not in part:
            found.append(name)
    return found


def undocumented(site: Path, pages: dict[Path, Page]) -> list[str]:
    """Public names that have no place in the reference."""
    found = []
    for module in site_reference.modules():
        page = pages[(site / site_reference.page_of(module)).with_suffix(".html")]
        for name in import_module(module).__all__:
            ends = (f".{name}", f".{name}.html")
            if f"{module}.{name}" not in page.ids and not [link for link in page.links if link.endswith(ends)]:
                found.append(f"{module}.{name}")
    return found


def test_the_site_is_built_strictly_and_holds_together(tmp_path: Path) -> None:
    """All in one, so that it is built once: without a network, whatever is wrong is an error."""
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **nowhere, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    pages = read_site(tmp_path)
    assert len(pages) > len(PAGES)
    assert dead_links(pages) == []
    assert fetched(pages) == []
    assert unreachable(tmp_path, pages) == []
    assert undocumented(tmp_path, pages) == []
    for file in pages:
        text = file.read_text(encoding="utf-8")
        assert "arithmatex" not in text, file
        if file.parent.name == "reference":
            assert not re.search(r":[a-z]+:`|:[a-z]+:<code>|\.\. math", text), file


def test_make_builds_it_strictly_too() -> None:
    """Quietly it would not be strict: warnings that are not shown are not counted."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"^docs: .*\n\t.*mkdocs build --strict$", makefile, re.MULTILINE)
    assert re.search(r"^test: .*\bdocs\b", makefile, re.MULTILINE)


def test_what_is_wrong_with_a_site_is_seen(tmp_path: Path) -> None:
    def write(name: str, text: str) -> None:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f'<article class="md-content">{text}</article>')

    links = ("methods.html#vim", "gone.html", "methods.html#no")
    script = '<script src="https://cdn.example.org/x.js"></script>'
    write("index.html", "".join(f'<a href="{link}">x</a>' for link in links) + script)
    write("methods.html", '<h3 id="vim">vim</h3>')
    write("reference/energies.html", '<h2 id="heat_ood.energies.VirtualLogit">V</h2>')
    pages = read_site(tmp_path)
    assert dead_links(pages) == ["index.html: gone.html", "index.html: methods.html#no"]
    assert fetched(pages) == ["index.html: https://cdn.example.org/x.js"]
    assert unreachable(tmp_path, pages) == METHODS_OF_OURS
    whole = '<math></math> 1.0 / 2.0 <a href="reference/energies.html#heat_ood.energies.VirtualLogit">V</a>'
    write("methods.html", f'<h3 id="vim">vim</h3>{whole}')
    assert set(METHODS_OF_OURS) - set(unreachable(tmp_path, read_site(tmp_path))) == {"vim"}


# Rows that were run later


def test_a_row_is_renewed_and_the_rest_is_left() -> None:
    old, new = (
        Results.load(DOCS / "results" / "shared-cifar10" / name / "results.json") for name in ("main", "residual")
    )
    (entry,) = [e for e in new.measured if e.name == "gmm, corrected"]
    mended = renew_rows.renewed(old, new, ["gmm, corrected", "gmm"])
    names = [e.name for e in old.measured]
    assert [e.name for e in mended.measured] == [*names, "gmm, corrected"]
    assert mended.measured[-1] == entry
    assert [e for e in mended.entries if e.name not in ("gmm", "gmm, corrected")] == [
        e for e in old.entries if e.name not in ("gmm", "gmm, corrected")
    ]
    assert mended.about["renewed"]["gmm"] == new.about["command"]


def test_rows_of_another_suite_or_that_are_not_there_are_refused() -> None:
    ten, hundred = (Results.load(DOCS / "results" / f"shared-{name}" / "residual" / "results.json") for name in NETS)
    with pytest.raises(SystemExit, match="differ in suite"):
        renew_rows.renewed(ten, hundred, ["gmm"])
    with pytest.raises(SystemExit, match="no row 'vim'"):
        renew_rows.renewed(ten, ten, ["vim"])
