"""A real browser, without a network, opens the reports: charts are drawn, can be zoomed, and nothing complains."""

import pytest

from dualnewton.interop.specification import Specification
from dualnewton.io import DataError, load
from dualnewton.lab import compare, sets
from dualnewton.lab.report import Chart, Curve, Panel, Report, Section, Table, write
from dualnewton.lab.report.page import page
from dualnewton.lab.reproduce import reproduce
from dualnewton.losses import Logistic
from dualnewton.objective.problem import Problem
from lab.browser import Browser, find

PROGRAM = find()
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no chromium is installed")


@pytest.fixture(scope="module")
def browser():
    one = Browser(PROGRAM)
    yield one
    one.close()


@pytest.fixture(scope="module")
def paper(tmp_path_factory):
    """The report of a quick look, and where it is."""

    def absent():
        raise DataError("put mushrooms there")

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sets.SETS, "mushrooms", (absent, absent))
        report = reproduce("all", quick=True, command="dualnewton reproduce all")
    return report, write(report, tmp_path_factory.mktemp("paper"), "report")[0]


@pytest.fixture(scope="module")
def duel(tmp_path_factory):
    dataset = load("dense:300x20")
    problem = Problem(dataset.X, dataset.y, Logistic(), lam=1.0 / 300)
    report, _ = compare.compare(
        problem,
        Specification("logistic", fit_intercept=False),
        "dense",
        methods="auto,sdna",
        peers="lbfgs",
        time_limit=20.0,
    )
    return report, write(report, tmp_path_factory.mktemp("duel"), "compare")[0]


def drawn(browser):
    """How many curves each chart of the page has, as they stand in the picture."""
    count = "[...document.querySelectorAll('.chart')].map(box => [box.id, box.querySelectorAll('.scatterlayer .trace').length])"
    return dict(browser.ask(count))


def expected(report):
    charts = [chart for section in report.sections for chart in section.charts]
    return {f"{chart.name}-{k}": len(panel.curves) for chart in charts for k, panel in enumerate(chart.panels)}


@pytest.mark.parametrize("which", ["paper", "duel"])
def test_charts_and_tables_are_there_and_nothing_complains(browser, which, request):
    report, path = request.getfixturevalue(which)
    browser.open(path)
    assert drawn(browser) == expected(report)
    assert all(expected(report).values())
    paths = "[...document.querySelectorAll('.scatterlayer .trace .js-line')].every(line => line.getAttribute('d').length > 5)"
    assert browser.ask(paths)
    rows = [len(table.rows) for section in report.sections for table in section.tables]
    assert browser.ask("[...document.querySelectorAll('section table tbody')].map(body => body.rows.length)") == rows
    assert browser.ask("[...document.querySelectorAll('section td')].some(cell => cell.textContent.length > 2)")
    verdicts = browser.ask("[...document.querySelectorAll('.verdict')].map(cell => cell.textContent)")
    assert verdicts == [claim.verdict.value for claim in report.claims]
    assert browser.errors == []


@pytest.mark.parametrize("width", [360, 1200])
def test_nothing_is_clipped_on_a_screen_of_any_width(browser, tmp_path, width):
    curves = [
        Curve(f"a solver with a long name, number {k}", [1, 2, 3], [0.1, 0.01, 0.001], "SDNA", k) for k in range(8)
    ]
    chart = Chart("chart", "chart", [[Panel("a", curves)]], "x", "y", "caption")
    section = Section("s", "title", "", charts=[chart], tables=[Table("t", ("a", "b"), [["x" * 50, "y" * 80]], "")])
    report = Report("title", "lead", [section], "command " * 60, [f"https://{'x' * 200}"], {"machine": "b" * 90})
    (tmp_path / "report.html").write_text(page(report), encoding="utf-8")
    browser.open(tmp_path / "report.html", width=width)
    bottoms = """new Promise(done => setTimeout(() => {
        const box = document.querySelector('.chart');
        done([box, box.querySelector('.legend')].map(each => each.getBoundingClientRect().bottom));
    }, 300))"""
    box, legend = browser.ask(bottoms)
    assert legend <= box + 1.0
    assert browser.ask("document.documentElement.scrollWidth") <= width


def test_an_error_of_a_page_is_seen(browser, paper, tmp_path):
    broken = tmp_path / "broken.html"
    text = paper[1].read_text(encoding="utf-8")
    broken.write_text(
        text.replace("</body>", "<script>no_such_thing()</script><img src='https://x.org/a.png'></body>"), "utf-8"
    )
    browser.open(broken)
    browser.ask("new Promise(done => setTimeout(done, 300))")
    assert any("no_such_thing" in str(error) for error in browser.errors)
    assert any("asks for" in str(error) for error in browser.errors)


def place_of(browser, selector):
    """Scroll to something and return x, y, width and height of where it is then."""
    browser.ask(f"document.querySelector('{selector}').scrollIntoView({{block: 'center', behavior: 'instant'}})")
    where = "(r => [r.x, r.y, r.width, r.height])"
    return browser.ask(f"{where}(document.querySelector('{selector}').getBoundingClientRect())")


def axes_of(browser, chart):
    layout = f"document.getElementById('{chart}')._fullLayout"
    return browser.ask(f"[...{layout}.xaxis.range, ...{layout}.yaxis.range]")


def settle(browser):
    """Wait as long as plotly waits for a second click, and longer."""
    browser.ask("new Promise(done => setTimeout(done, 500))")


def test_a_mouse_zooms_and_a_double_click_goes_back(browser, paper):
    browser.open(paper[1])
    x, y, width, height = place_of(browser, "#figure1-0 .nsewdrag")
    before = axes_of(browser, "figure1-0")
    browser.drag((x + 0.25 * width, y + 0.25 * height), (x + 0.5 * width, y + 0.5 * height))
    settle(browser)
    after = axes_of(browser, "figure1-0")
    across = before[1] - before[0]
    assert after[0] == pytest.approx(before[0] + 0.25 * across, abs=0.02 * across)
    assert after[1] == pytest.approx(before[0] + 0.5 * across, abs=0.02 * across)
    assert after[3] - after[2] == pytest.approx(0.25 * (before[3] - before[2]), rel=0.1)
    browser.click((x + 0.5 * width, y + 0.5 * height), times=2)
    settle(browser)
    assert axes_of(browser, "figure1-0") == pytest.approx(before)


def test_a_click_on_the_legend_hides_a_curve(browser, paper):
    browser.open(paper[1])
    many = drawn(browser)["figure2-0"]
    x, y, width, height = place_of(browser, "#figure2-0 .legendtoggle")
    browser.click((x + 0.5 * width, y + 0.5 * height))
    settle(browser)
    assert drawn(browser)["figure2-0"] == many - 1


@pytest.mark.parametrize("dark", [False, True])
def test_it_fits_a_phone_by_day_and_by_night(browser, paper, dark):
    browser.open(paper[1], width=390, height=800, dark=dark)
    assert browser.ask("document.documentElement.scrollWidth") <= 390
    assert drawn(browser) == expected(paper[0])
    light = browser.ask("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert light is not dark
    ink = browser.ask("document.getElementById('figure1-0')._fullLayout.font.color")
    assert ink == ("#e6e9ee" if dark else "#1c2430")
    assert browser.errors == []
