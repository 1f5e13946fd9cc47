"""The page in a real browser: it loads without a fault, draws, explains, and fits phones."""

import pytest

from tests.report.page.conftest import ODD

WIDTHS = [1280, 360]


@pytest.fixture
def shown(browser, page):
    """The browser with the page at its first view, opened once for tests that look and click."""
    if browser.shows != page:
        browser.open(page)
    browser.faults.clear()
    browser.run("fedpace.turnTo('comparison')")
    return browser


@pytest.fixture
def timeline(shown):
    """The browser with the whole timeline drawn."""
    shown.run("fedpace.turnTo('timeline')")
    shown.wait("document.querySelector('.lanes canvas').dataset.drawn")
    shown.run("fedpace.timeline.show(0, fedpace.timeline.lanes().length)")
    shown.drawn()
    return shown


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_every_view_shows_without_a_fault_and_fits_the_width(browser, page, width, dark):
    browser.open(page, width, dark=dark)
    for view in ("comparison", "timeline", "settings"):
        browser.run(f"fedpace.turnTo('{view}')")
        browser.drawn()
        assert browser.run("document.documentElement.scrollWidth") <= width, view
    assert browser.faults == []
    assert browser.requests == [page.absolute().as_uri()]
    look = browser.run("getComputedStyle(document.body).backgroundColor")
    assert (look == "rgb(14, 16, 19)") == dark


def test_text_of_journals_stays_text(shown):
    assert shown.run("document.getElementById('title').textContent") == f"Title {ODD}"
    labels = shown.run("[...document.querySelectorAll('.filter .key')].map((one) => one.textContent)")
    assert labels == ["sync", ODD, "fedbuff"]
    assert shown.run("document.querySelectorAll('main b').length") == 0


def test_charts_are_drawn_and_the_axis_can_be_chosen(browser, page):
    browser.open(page, height=4000)
    browser.wait("!document.querySelector('.chart:not([data-drawn])')")
    assert browser.run("document.querySelectorAll('.chart').length") >= 5
    for axis in ("rounds", "bytes", "time"):
        browser.run(f"document.querySelector('[data-name=axis] [data-value={axis}]').click()")
        name = "echarts.getInstanceByDom(document.querySelector('.chart')).getOption().xAxis[0].name"
        assert {"rounds": "rounds", "bytes": "moved", "time": "virtual"}[axis] in browser.run(name)
    assert browser.faults == []


def test_targets_say_whether_seeds_can_tell_labels_apart(shown):
    verdicts = "[...document.querySelectorAll('.targets .verdict')].map((one) => one.textContent)"
    found = shown.run(verdicts)
    assert len(found) == 2
    assert all(one.split(" ", 1)[1] in ("faster", "slower", "not told apart") for one in found)
    shown.run("document.querySelector('[data-name=target] [data-value=\"2\"]').click()")
    found = shown.run(verdicts)
    assert all(one.split(" ", 1)[1] in ("better", "worse", "not told apart") for one in found)
    shown.run("document.querySelector('[data-name=target] [data-value=\"0\"]').click()")


def test_whose_data_counts_is_a_table_with_reasons(shown):
    card = "document.querySelector('[data-card=\"Whose data counts\"]')"
    heads = shown.run(f"[...{card}.querySelectorAll('thead th')].map((one) => one.textContent)")
    assert heads == ["", "slow third", "middle third", "fast third", "misplaced"]
    rows = shown.run(f"{card}.querySelectorAll('tbody tr').length")
    assert rows == 3
    assert "fedbuff counts the slowest third" in shown.run(f"{card}.textContent")


def test_a_click_on_a_round_explains_it(timeline):
    timeline.click(*timeline.run("fedpace.timeline.placeOfRound(3)"))
    said = timeline.run("document.querySelector('.why .sentence').textContent")
    assert said.startswith("Round 3: ")
    assert "because of client" in said
    assert said.endswith("of all client time waited")
    assert timeline.faults == []


def test_a_click_on_a_span_names_its_client_and_the_round(timeline):
    timeline.click(
        *timeline.run("fedpace.timeline.placeOfClient(5, 0.4 * fedpace.timeline.lanes().length)")
    )
    said = timeline.run(
        "[...document.querySelectorAll('.why .sentence')].map((one) => one.textContent)"
    )
    assert said[0].startswith("Client 5: ")
    assert said[1].startswith("Round ")


def test_the_canvas_has_the_colours_of_the_phases(timeline):
    found = timeline.run(
        "(() => { const canvas = document.querySelector('.lanes canvas');"
        "const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;"
        "const seen = new Set();"
        "for (let i = 0; i < data.length; i += 4) seen.add(`#${[0, 1, 2].map((k) => data[i + k]"
        ".toString(16).padStart(2, '0')).join('')}`);"
        "return [2, 3, 5].map((phase) => seen.has(fedpace.phaseColour(phase))); })()"
    )
    assert found == [True, True, True]


def test_lanes_can_be_sorted_searched_and_zoomed(timeline):
    timeline.run("document.querySelector('[data-name=sort] [data-value=number]').click()")
    assert timeline.run("[...fedpace.timeline.lanes().order]") == list(range(12))
    timeline.run(
        "(() => { const box = document.querySelector('input[type=search]'); box.value = '7';"
        "box.dispatchEvent(new Event('input')); })()"
    )
    assert timeline.run("fedpace.timeline.view.found") == 7
    timeline.run("document.querySelector('[title=\"Zoom in\"]').click()")
    assert timeline.run("fedpace.timeline.view.to - fedpace.timeline.view.from") == pytest.approx(
        timeline.run("fedpace.timeline.lanes().length") / 2
    )


def test_newer_data_is_shown_in_place_and_choices_stay(browser, page):
    browser.open(page)
    browser.shows = None  # what follows is another page
    browser.run("document.querySelector('[data-name=axis] [data-value=rounds]').click()")
    browser.run("fedpace.turnTo('timeline')")
    browser.run("fedpace.timeline.show(1, 2)")
    data = "const data = JSON.parse(document.getElementById('data').textContent); data.title = 'newer';"
    browser.run(f"(async () => {{ {data} await fedpace.show(data); }})()")
    assert browser.run("document.getElementById('title').textContent") == "newer"
    assert browser.run("fedpace.chosen.axis") == "rounds"
    assert browser.run("[fedpace.timeline.view.from, fedpace.timeline.view.to]") == [1, 2]
    browser.run("fedpace.turnTo('comparison')")
    browser.run("document.querySelector('.chart').dataset.mine = 1")
    browser.run(f"(async () => {{ {data} await fedpace.show(data); }})()")
    assert browser.run("document.querySelector('.chart').dataset.mine") == "1", (
        "charts are not made anew"
    )
    assert browser.faults == []


def test_the_look_can_be_switched(shown):
    browser = shown
    browser.run("document.getElementById('theme').click()")
    assert browser.run("document.documentElement.dataset.theme") == "dark"
    browser.run("document.getElementById('theme').click()")
    assert browser.run("document.documentElement.dataset.theme") == "light"
    browser.run("localStorage.clear()")
    assert browser.faults == []
