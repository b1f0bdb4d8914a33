"""The report: what it says, that it holds all it needs, and that it trusts no name."""

import math
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from heat_ood.errors import InputError
from heat_ood.evaluation import Evaluation, evaluate_scores
from heat_ood.metrics import METRICS
from heat_ood.report import report, write_report
from heat_ood.report._figures import highlights
from heat_ood.report._headline import headlines
from heat_ood.report._html import asset
from heat_ood.report._markup import Raw, el, join
from heat_ood.report._words import summary
from heat_ood.results._results import Cost, Entry, Missing, Picture, Results, Run
from results_data import cost, entry, evaluation, gallery, lines, measured, png, rich, small, without

EVIL = "<script>alert('x')</script>\"'&"
EVERY = {
    "small": small,
    "rich": rich,
    "without": without,
    "cost": cost,
    "gallery": gallery,
    "lambda": lambda: lines("lambda"),
    "beta": lambda: lines("beta"),
    "low-data": lambda: lines("low-data"),
    "empty": lambda: rich(entries=()),
}
VOID = {"meta", "img", "br", "path", "line", "rect", "circle", "polyline", "polygon"}


class Page(HTMLParser):
    """Tags with their attributes, the text of all that is shown, and whether every element is closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("script", "style"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.words)

    def count(self, tag: str, **attributes: str) -> int:
        return sum(t == tag and attributes.items() <= a.items() for t, a in self.tags)


@pytest.mark.parametrize("name", EVERY)
def test_every_report_is_well_formed_and_the_same_twice(name):
    html = report(EVERY[name]())
    page = Page(html)
    assert page.open == []
    assert html == report(EVERY[name]())
    assert page.count("h1") == page.count("main") == page.count("title") == 1
    assert not re.search(r"\bnan\b", re.sub(r'data-sort="nan"', "", html))
    assert "None" not in page.text


@pytest.mark.parametrize("name", EVERY)
def test_nothing_is_loaded(name):
    html = report(EVERY[name]())
    page = Page(html)
    assert page.count("link") == page.count("iframe") == 0
    for tag, attributes in page.tags:
        for key in ("src", "href", "srcset", "action", "data", "xlink:href"):
            assert attributes.get(key, "#").startswith(("#", "data:image/")), (tag, attributes)
    assert not re.search(r"@import|url\((?!#)", html)
    assert "default-src 'none'" in next(a["content"] for _, a in page.tags if "http-equiv" in a)
    assert "http://" not in html
    assert "https://" not in html


def test_names_are_never_markup():
    base = rich()
    entries = [measured(EVIL, "baseline", 0.7), *base.entries[2:]]
    entries = [replace(e, settings={EVIL: EVIL}) for e in entries]
    odd = Results(
        suite=EVIL,
        title=EVIL,
        id=EVIL,
        backbone=EVIL,
        groups=base.groups,
        experiment="main",
        entries=tuple(entries),
        missing=(Missing(EVIL, EVIL, EVIL),),
        about={EVIL: {EVIL: [EVIL]}},
        pictures=(Picture("svhn", png((1, 2, 3)), (EVIL,), (EVIL,), {EVIL: 1.0}), Picture(EVIL, f"data:image/{EVIL}")),
        costs=(Cost(EVIL, 1.0, 1.0),),
    )
    for html in (report(odd), report([odd, odd])):
        page = Page(html)
        assert page.count("script") == 1
        assert EVIL in page.text
        assert all(EVIL in a["aria-label"] or "<" not in a["aria-label"] for _, a in page.tags if "aria-label" in a)
        assert not any(key.startswith("on") for _, a in page.tags for key in a)


def test_sets_and_groups_are_never_markup():
    groups = {EVIL: (f"a{EVIL}",), "far": ("b",)}
    rows = [
        entry(n, k, {f"a{EVIL}": (f, 80.0), "b": (30.0, f)})
        for n, k, f in (("x", "baseline", 50.0), ("HEAT", "heat", 60.0))
    ]
    odd = Results("s", "t", "i", "b", groups, "main", tuple(rows))
    assert Page(report(odd)).count("script") == 1


def test_elements_escape_all_but_raw():
    assert el("a", "<b>", Raw("<i></i>"), None, ["&", 3], href='"', hidden=True, class_=None) == (
        '<a href="&quot;" hidden>&lt;b&gt;<i></i>&amp;3</a>'
    )
    assert el("img", alt="<") == '<img alt="&lt;"/>'
    assert join(["<", [Raw("<br/>")]]) == "&lt;<br/>"


# What is said


def test_the_summary_by_hand():
    first, fpr, auroc = summary(small())
    assert first == "Experiment “main” on digits with a network: three methods, two OOD sets (a and b), two seeds."
    assert fpr == (
        "HEAT has the lowest average FPR95 (fpr_at_95_id), 37.5 ± 0.7 %: 5.5 points better than the next, gmm "
        "(43.0 ± 0.7 %); more than the spread over seeds, 1.0 points."
    )
    assert auroc.startswith("HEAT has the highest average AUROC, 90.5 ± 0.0 %: 2.5 points better than the next, gmm")
    html = report(small())
    assert "of three columns, it does not have the best number in 1 by FPR95 (fpr_at_95_id) and 1 by AUROC" in html


def test_the_summary_says_where_heat_is_when_it_does_not_win():
    swapped = replace(
        small(),
        entries=tuple(
            replace(e, name=n, kind=k)
            for e, n, k in zip(small().entries, ("HEAT", "gmm", "knn"), ("heat", "prior", "baseline"), strict=True)
        ),
    )
    text = " ".join(summary(swapped))
    assert "knn has the lowest average FPR95" in text
    assert "HEAT is number 3 of 3 with 55.0 ± 0.0 %, 17.5 points behind; more than the spread over seeds" in text


def test_heat_that_always_wins_has_no_list_of_losses():
    results = replace(small(), entries=(small().entries[0], small().entries[2]))
    assert any("on every set and in every average" in text for text in summary(results))
    assert "does not win" not in report(results)


def test_a_lead_within_the_bootstrap_interval_is_no_victory():
    near = replace(rich(), entries=(measured("x", "baseline", 1.0), measured("y", "heat", 1.0)))
    assert "other test images may reverse it" in " ".join(summary(near))
    far = replace(rich(), entries=(measured("x", "baseline", 0.4), measured("y", "heat", 1.4)))
    assert "may reverse it" not in " ".join(summary(far))


def test_one_seed_says_that_the_spread_is_not_known():
    one = replace(small(), entries=tuple(replace(e, runs=e.runs[:1]) for e in small().entries))
    assert "with one seed, the spread is not known" in " ".join(summary(one))


def test_the_plain_composition_and_the_paper_are_named():
    text = " ".join(summary(rich()))
    assert "Against the plain composition, which has the same priors and no residuals, HEAT is" in text
    assert "The paper reports 27.5 / 90.5 (FPR95 / AUROC) for HEAT as it is there" in text
    assert "paper's priors" not in text
    like = measured("paper's priors, corrected", "heat", 0.9)
    results = rich(entries=(*rich().entries, like))
    numbers = " / ".join(f"{100 * results.mean(like, metric).mean:.1f}" for metric in ("fpr_at_95_id", "auroc"))
    assert f", and paper's priors, corrected, {numbers}." in " ".join(summary(results))


def test_missing_sets_are_named_with_directions():
    html = report(without("svhn"))
    assert "Not found, and left out of the averages: svhn." in html
    assert "the web page of the set" in html
    assert "data/svhn/" in html


def test_corrections_are_counted():
    rows = [
        entry("gmm", "prior", {"a": (50.0, 80.0)}),
        entry("gmm, corrected", "corrected", {"a": (48.0, 81.0)}),
        entry("knn", "prior", {"a": (40.0, 85.0)}),
        entry("knn, corrected", "corrected", {"a": (43.0, 85.0)}),
    ]
    results = Results("s", "t", "i", "b", {"ood": ("a",)}, "correction", tuple(rows))
    fpr, auroc = summary(results)[1:]
    assert "helps 1 of 2 rows; the median change is 0.5 points worse. It does harm to knn." in fpr
    assert "helps 2 of 2 rows" in auroc
    assert "What the correction does" in report(results)


def test_the_other_experiments_have_words_of_their_own():
    words = " ".join(summary(cost()))
    assert "a sample takes 25 ms, of which 80 % are the backbone's and 5 ms its own; an ensemble takes 4 times" in words
    assert "Six pictures on which the methods disagree: HEAT catches 6 and misses 0" in " ".join(summary(gallery()))
    assert [text.split(".")[0] for text in summary(lines("low-data"))[1:]] == ["gmm", "ebm", "HEAT"]
    both = [
        entry(n, k, {"a": (f, 90.0)})
        for n, k, f in (("gmm, uncorrected", "composition", 30.0), ("gmm, corrected", "heat", 20.0))
    ]
    found = summary(Results("s", "t", "i", "b", {"ood": ("a",)}, "composition", tuple(both)))
    assert any("helps 1 of 1 rows" in text for text in found)


# What is shown


def test_tables_of_all_metrics_with_ours_sorted_and_the_paper_apart():
    page = Page(report(rich()))
    assert page.count("table", **{"class": "sortable"}) == 6
    assert page.count("th", **{"aria-sort": "ascending"}) == 2
    assert page.count("th", **{"aria-sort": "descending"}) == 3
    assert page.count("tbody") >= 10
    assert page.count("tr", **{"class": "paper"}) == 5
    names = re.findall(r'<tr[^>]*><th scope="row">([^<]*)</th><td class="kind">', report(rich()))
    assert names[:6] == ["HEAT", "plain composition", "knn", "gmm", "msp", "HEAT (paper)"]


def test_time_intervals_and_settings_are_shown():
    fast = replace(measured("gmm", "prior", 0.8), settings={"shrinkage": 0.01})
    page = Page(report(replace(rich(), entries=(fast, *rich().entries[3:]))))
    assert "shrinkage=0.01" in page.words
    assert "2.3" in page.words, "seconds of the fit"
    assert "18" in page.words, "microseconds a sample"
    assert page.words.count("interval") == 5
    low, high = fast.runs[0].evaluation.average.intervals["auroc"]
    assert low < high
    assert "interval" not in Page(report(small())).words


def test_charts_of_a_main_experiment():
    page = Page(report(rich()))
    labels = [a.get("aria-label", "") for t, a in page.tags if t == "svg"]
    assert sum(label.startswith("ROC curves") for label in labels) == 6
    assert sum(label.startswith("Histograms") for label in labels) == 30
    assert sum(label.startswith("FPR95") for label in labels) == 4
    assert sum(label.startswith("Nominal") for label in labels) == 1
    for heading in ("Near to far", "ROC curves", "Scores", "Is the false-alarm rate what was asked for?", "Details"):
        assert heading in page.words


@pytest.mark.parametrize("experiment", ["lambda", "beta", "low-data"])
def test_lines_come_before_their_points(experiment):
    page = Page(report(lines(experiment)))
    assert page.words.index("Curves") < page.words.index("All points")
    assert "Near to far" not in page.words
    assert "ROC curves" not in page.words


def of_the_paper(x: float, average: tuple[float, float], name: str = "λ = 10") -> Entry:
    return Entry(name, "paper", (Run(-1, evaluation({}, average)),), series="HEAT-GMM", x=x)


def test_the_paper_s_points_are_hollow():
    results = lines("lambda")
    html = report(replace(results, entries=(*results.entries, of_the_paper(10.0, (41.0, 87.0)))))
    assert "hollow" in html.replace(asset("report.css"), "")
    assert "HEAT-GMM (paper)" in html
    assert "Hollow markers" in html


def test_points_of_the_paper_that_would_flatten_ours_are_said_instead():
    results = lines("lambda")
    theirs = [of_the_paper(10.0, (1.5, 99.8)), of_the_paper(math.inf, (5.1, 99.3), "no residual")]
    html = report(replace(results, entries=(*results.entries, *theirs)))
    assert "hollow" not in html.replace(asset("report.css"), "")
    page = Page(html)
    assert "Hollow markers" not in page.text
    assert "fpr_at_95_id of HEAT-GMM (paper) 1.5; fpr_at_95_id of no residual (paper) 5.1" in page.text
    assert "AUROC of HEAT-GMM (paper) 99.8" in page.text

    def heights(r: Results) -> list[str]:
        return [a["points"] for t, a in Page(report(r)).tags if t == "polyline" and "line" in a.get("class", "")]

    assert heights(results) == heights(replace(results, entries=(*results.entries, *theirs)))


def test_the_prior_without_a_residual_is_a_level_and_no_point():
    labels = [a.get("aria-label", "") for t, a in Page(report(lines("lambda"))).tags if t == "svg"]
    (chart,) = [label for label in labels if label.startswith("Average FPR95")]
    assert re.search(r"HEAT-GMM at inf: [0-9.]+ throughout$", chart)
    assert "∞" not in chart


def test_it_is_said_with_which_lambda_a_residual_is_better_than_none():
    results = lines("lambda")
    words = " ".join(summary(results))
    none = next(e for e in results.entries if e.x == math.inf)
    for metric, name in (("fpr_at_95_id", "FPR95 (fpr_at_95_id)"), ("auroc", "AUROC")):
        sign = -1 if metric.startswith("fpr") else 1
        held = sign * results.mean(none, metric).mean
        helped = [e.name for e in results.entries if sign * results.mean(e, metric).mean > held]
        every = len(helped) == len(results.entries) - 1
        assert f"by {name} {'everywhere' if every else 'at ' + ', '.join(helped[:-1]) + ' and ' + helped[-1]}" in words


def test_the_rows_of_charts_hold_heat_the_plain_composition_and_the_plainest():
    names = [e.name for e in highlights(rich())]
    assert names == ["HEAT", "plain composition", "knn", "gmm", "msp"]
    many = replace(rich(), entries=(*rich().entries, *(measured(f"m{i}", "baseline", 0.95) for i in range(8))))
    assert len(highlights(many)) == 6
    assert [e.name for e in highlights(many)][-1] == "msp"


def test_pictures_are_a_grid_of_green_and_red_frames():
    results = gallery()
    page = Page(report(results))
    images = [a for t, a in page.tags if t == "image"]
    assert [a["href"] for a in images] == [picture.image for picture in results.pictures], "each once"
    shown = [a["href"] for t, a in page.tags if t == "use"]
    assert shown == [f"#{a['id']}" for a in images for _ in range(3)], "a row a method"
    frames = [a["class"] for t, a in page.tags if t == "td" and a.get("class") in ("hit", "miss")]
    order = dict.fromkeys(name for p in results.pictures for name in (*p.caught_by, *p.missed_by))
    names = sorted(order, key=lambda n: n == "HEAT")
    for i, picture in enumerate(results.pictures):
        found = dict(zip(names, frames[3 * i : 3 * i + 3], strict=True))
        assert {n for n, frame in found.items() if frame == "hit"} == set(picture.caught_by)
    assert "an image of svhn, missed by energy" in [a.get("aria-label") for t, a in page.tags if t == "svg"]


def test_costs_of_the_paper_have_a_scale_of_their_own():
    theirs = (Cost("HEAT (paper)", 519.4, 1.0), Cost("deep-ensemble (paper)", 2501.0, 4.8))
    page = Page(report(replace(cost(), costs=(*cost().costs, *theirs))))
    labels = [a.get("aria-label", "") for t, a in page.tags if t == "svg"]
    ours, paper = [label for label in labels if label.startswith("Cost")]
    assert "HEAT 25 ms · 100 %" in ours
    assert paper.endswith("HEAT 519 ms · 100 %; deep-ensemble 2,501 ms · 480 %")
    assert "of which 80 % are the backbone's and 5 ms its own" in page.text


def test_several_runs_side_by_side():
    page = Page(report([rich(), replace(rich(), suite="other"), lines("beta")]))
    assert "Three runs compared" in page.words
    assert "Side by side" in page.words
    assert page.count("article") == 3
    links = [a["href"] for t, a in page.tags if t == "a"]
    assert links == ["#run-0", "#run-1", "#run-2"]
    assert {f"#{a['id']}" for _, a in page.tags if "id" in a} >= set(links)


def test_two_runs_of_one_suite_are_told_apart():
    page = Page(report([rich(), rich()]))
    assert "demo (1)" in page.words
    assert "demo (2)" in page.words


def test_the_file_is_written_whole(tmp_path):
    path = write_report([small()], tmp_path / "report.html")
    assert path.read_text(encoding="utf-8") == report(small())
    with pytest.raises(InputError, match=r"Call it report\.html"):
        write_report([small()], tmp_path / "report.pdf")
    with pytest.raises(InputError, match="no results"):
        write_report([], tmp_path / "report.html")


# Colours


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def themes() -> list[dict[str, str]]:
    blocks = re.findall(r":root \{(.*?)\}", asset("report.css"), re.DOTALL)
    return [dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", block)) for block in blocks]


@pytest.mark.parametrize("theme", themes(), ids=["light", "dark", "print"])
def test_every_colour_stands_out_from_the_page(theme):
    assert math.isclose((luminance("#ffffff") + 0.05) / (luminance("#000000") + 0.05), 21)
    inks = [name for name in theme if name in ("soft", "ink", "accent") or re.fullmatch(r"s\d", name)]
    assert len(inks) >= 8
    for ground in ("page", "fill"):
        for name in inks:
            light, dark = sorted((luminance(theme[name]), luminance(theme[ground])), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (name, ground)


# Headlines


def test_the_page_opens_with_who_wins_the_networks_accuracy_and_the_date():
    found = {h.title: h for h in headlines(rich())}
    results = rich()
    for title, metric in (("FPR95, average", "fpr_at_95_id"), ("AUROC, average", "auroc")):
        first, second = results.ranked(metric)[:2]
        lead = 100 * abs(results.mean(first, metric).mean - results.mean(second, metric).mean)
        assert found[title].number == f"{100 * results.mean(first, metric).mean:.1f} %"
        assert found[title].note == f"HEAT, {lead:.1f} points ahead of plain composition"
    assert found["accuracy of the network"].number == "91.0 %"
    assert found["date"] == ("date", "2 January 2026", "heat-ood 0.1.0")

    html = report(results)
    places = [
        html.index(text) for text in ("FPR95, average", "FPR95: share of OOD accepted when 95 % of ID is", "Exper")
    ]
    assert places == sorted(places)
    assert "AUROC, average" in report([results, small()])


def test_headlines_say_where_heat_does_not_win():
    entries = [measured("HEAT", "heat", 0.7), measured("knn", "baseline", 0.9), measured("gmm", "prior", 0.8)]
    first, *_ = headlines(rich(entries=tuple(entries)))
    assert re.fullmatch(r"knn, [0-9.]+ points ahead of gmm; HEAT [0-9.]+ %, [0-9.]+ points behind", first.note)


@pytest.mark.parametrize(
    "about", [{}, {"created": "yesterday"}, {"model": 7, "versions": []}, {"model": {"accuracy": "good"}}]
)
def test_headlines_leave_out_what_is_not_known(about):
    assert [h.title for h in headlines(rich(about=about))] == ["FPR95, average", "AUROC, average"]
    assert headlines(rich(about=about, entries=())) == []


# One's own evaluation


def own(**changes):
    rng = np.random.default_rng(0)
    sets = {"svhn": rng.normal(4, 1, 200), "near": rng.normal(1, 1, 300)}
    about = {"method": "HEAT", "id": "test", "backbone": "timm:resnet34", "accuracy": 0.93, "created": "2026-01-02"}
    pictures = (
        Picture("test", png((9, 9, 9)), ("HEAT",), (), {"HEAT": 3.25}, "bee/7.png"),
        Picture("svhn", png((1, 2, 3)), (), ("HEAT",), {"HEAT": 0.125}),
    )
    return replace(evaluate_scores(rng.normal(size=400), sets, curves=True), about=about, pictures=pictures, **changes)


def test_an_evaluation_has_a_page():
    evaluation = Evaluation.from_json(own().to_json())
    html = report(Results.of(evaluation))
    page = Page(html)
    assert page.open == []
    assert "HEAT on test" in page.text
    assert "the easiest set is svhn" in page.text
    assert "93.0 %" in page.text
    for row in (*evaluation, evaluation.average):
        for metric in METRICS:
            assert f"{100 * getattr(row, metric):.1f}" in page.words
    labels = [a["aria-label"] for tag, a in page.tags if tag == "svg" and "aria-label" in a]
    assert [label.split(",")[0] for label in labels] == [
        "ROC curves",
        "Histograms of the scores of HEAT: ID and svhn",
        "Histograms of the scores of HEAT: ID and near",
    ]
    assert "near" in labels[0], "one chart of all sets"
    assert page.count("img") == 2
    assert "bee/7.png" in page.text
    assert "3.25, called OOD" in page.text
    assert "0.125, accepted" in page.text
    assert "seed" not in page.text.replace("seeds", "").partition("Details")[0]


def test_an_evaluation_without_the_rest_has_a_page_too():
    bare = replace(own(), curves={}, about={}, pictures=(), resamples=0)
    page = Page(report(Results.of(bare)))
    assert page.open == []
    assert "the detector on the ID set" in page.text
    assert page.count("svg", role="img") == 0
    with pytest.raises(InputError, match="no OOD set"):
        Results.of(Evaluation((), bare.average))


def test_names_of_an_evaluation_are_never_markup():
    odd = replace(own(), about={"method": EVIL, "id": EVIL, "backbone": EVIL, "created": EVIL, EVIL: EVIL})
    page = Page(report(Results.of(odd)))
    assert page.count("script") == 1
    assert EVIL in page.text
