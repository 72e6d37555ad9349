"""The live forms in Chromium: the book's own Python, asked by knobs, in the reader's browser."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from importlib.resources import files
from random import Random
from urllib.parse import quote

import pytest
from test_site import AXE, CROWDED, FAINT, RULES, SMALL, WEAR, settle

from lib.live import NAMES, Choice, Number, Refused, calculator
from lib.press import forms, live

DESK, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
every_calculator = pytest.mark.parametrize("name", NAMES)
FORM = re.compile(r'<section class="live" data-live="(\w+)".*?</section>', re.S)
ASK = """async ([name, knobs]) => {
  const section = document.querySelector(`[data-live=${name}]`), form = section.querySelector("form");
  delete section.answer;
  for (const knob in knobs) form.elements[knob].value = knobs[knob];
  form.dispatchEvent(new Event("input"));
  for (let tries = 0; !section.answer && tries < 3000; tries++) {
    await new Promise(done => setTimeout(done, 20));
  }
  return section.answer;
}"""
HEIGHT = "name => document.querySelector(`[data-live=${name}]`).offsetHeight"


# ---- knobs and answers, without a browser


@every_calculator
def test_calculator_is_called_like_a_function_and_answers_by_default(name):
    answer = calculator(name)()
    assert calculator(name).name == name
    assert answer["say"]
    assert len({len(cells) for cells in answer["table"].values()}) == 1
    assert answer["plot"]["marks"]


@every_calculator
def test_every_knob_refuses_with_a_word_on_what_would_do(name):
    for knob in calculator(name).knobs:
        wrong = "nothing of the kind" if isinstance(knob, Choice) else knob.high + 1
        with pytest.raises(Refused, match=f"^{knob.name}=.*; use ") as refused:
            calculator(name)(**{knob.name: wrong})
        assert list(refused.value.wrong) == [knob.name]


@pytest.mark.parametrize("given", ["", "x", "nan", "inf", "1.5", 0, 11, True, None])
def test_a_number_refuses_what_it_cannot_read(given):
    with pytest.raises(ValueError, match=r"^n=.* will not do; use a whole number, 1 to 10 s$"):
        Number("n", "N", "s", 5, 1, 10).read(given)


def test_a_number_is_read_as_a_page_gives_it():
    assert Number("n", "N", "", 5, 1, 10_000).read("1,024") == 1024
    assert Number("n", "N", "", 5, 0, 10, whole=False).read("2.5") == 2.5


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="use one of"):
        calculator("nothing")
    with pytest.raises(Refused, match="is no knob; use"):
        calculator(NAMES[0])(nothing=1)


def test_what_the_browser_gets_of_lib_imports_nothing_else():
    shipped = {path.with_suffix("").as_posix().replace("/", ".") for path in live.modules()}
    found = set()
    for path in live.modules():
        if path.suffix == ".py" and "/press/" in path.as_posix():
            found |= set(re.findall(r"^(?:from|import) (lib\.press\.\w+)", path.read_text("utf8"), re.M))
    assert found
    assert not {name for name in found if not any(one.endswith(name) for one in shipped)}


# ---- in the browser


@pytest.fixture(scope="module")
def sections(site) -> dict[str, str]:
    """The form of every calculator, as the page that has it shows it."""
    pages = [path.read_text("utf8") for path in sorted(site.glob("book/**/*.html"))]
    return {found[1]: found[0] for page in pages for found in FORM.finditer(page)}


def test_every_calculator_stands_on_one_page(sections, site):
    assert set(sections) == set(NAMES)
    for path in site.glob("book/**/*.html"):
        page = path.read_text("utf8")
        assert ("live.js" in page) == ("live.css" in page) == bool(FORM.search(page)), path.name


@pytest.fixture(scope="module")
def tab(browser, address, site, sections) -> Iterator:
    """A tab with all forms on one page, so that Python is loaded once; it notes what goes wrong."""
    page = (site / "book" / "roofline.html").read_text("utf8")
    all_forms = FORM.sub(lambda _: "".join(sections[name] for name in NAMES), page)
    context = browser.new_context(viewport=DESK, color_scheme="light", reduced_motion="reduce")
    tab = context.new_page()
    tab.complaints, tab.asked = [], []
    tab.on("pageerror", lambda error: tab.complaints.append(str(error)))
    tab.on("console", lambda m: m.type in ("error", "warning") and tab.complaints.append(m.text))
    tab.on("request", lambda request: tab.asked.append(request.url))
    answer = {"body": all_forms, "content_type": "text/html"}
    tab.route(re.compile(r"/book/all\.html"), lambda route: route.fulfill(**answer))
    tab.goto(f"{address}book/all.html")
    yield tab
    context.close()


@pytest.fixture
def ready(tab, address):
    """The tab, at the knobs that it started with."""
    tab.set_viewport_size(DESK)
    tab.evaluate(WEAR, "light")
    tab.evaluate("document.querySelectorAll('.live form').forEach(form => form.reset())")
    return tab


def form(tab, name: str):
    """Return the section of a calculator."""
    return tab.locator(f".live[data-live={name}]")


def same(here: object, there: object) -> bool:
    """Tell whether two results agree to 12 significant digits."""
    if isinstance(here, float) and isinstance(there, (int, float)):
        return math.isclose(here, there, rel_tol=1e-12)
    if isinstance(here, dict):
        return here.keys() == there.keys() and all(same(here[key], there[key]) for key in here)
    if isinstance(here, (list, tuple)):
        return len(here) == len(there) and all(map(same, here, there))
    return here == there


def settings(name: str, count: int) -> Iterator[dict[str, object]]:
    """Yield knobs that were drawn by chance, always the same."""
    chance = Random(name)
    for _ in range(count):
        yield {
            knob.name: chance.choice(knob.choices) if isinstance(knob, Choice) else within(knob, chance)
            for knob in calculator(name).knobs
        }


def within(knob: Number, chance: Random) -> float:
    """Return a value of a knob, near its default or anywhere."""
    if not knob.whole:
        return round(chance.uniform(knob.low, knob.high), 3)
    return chance.randint(int(knob.low), int(min(knob.high, 4 * knob.default + 4)))


def test_a_form_shows_its_result_before_anyone_touches_it_and_loads_nothing(tab):
    for name in NAMES:
        shown = form(tab, name).inner_text()
        assert calculator(name)()["say"][0] in " ".join(shown.split())
        assert form(tab, name).locator("svg.plot").is_visible()
    assert not [url for url in tab.asked if "pyodide" in url or "/plot/" in url or "worker" in url]


def test_the_first_touch_loads_python_and_says_so(tab):
    first = form(tab, NAMES[0])
    before = tab.evaluate(HEIGHT, NAMES[0])
    first.locator("input").first.press("ArrowUp")
    first.get_by_role("progressbar", name="Loading Python").wait_for()
    assert "Loading" in first.locator(".live-status").inner_text()
    assert tab.evaluate(HEIGHT, NAMES[0]) == before
    first.get_by_text("Computed here").wait_for()
    assert tab.evaluate(HEIGHT, NAMES[0]) == before


@every_calculator
def test_results_equal_those_of_cpython(ready, name):
    compared = 0
    for knobs in ({}, *settings(name, 5)):
        try:
            here = calculator(name)(**knobs)
        except ValueError:
            continue
        assert same(here, ready.evaluate(ASK, [name, {k: str(v) for k, v in knobs.items()}])), knobs
        compared += 1
    assert compared > 3


@every_calculator
def test_an_answer_moves_nothing_on_the_page(ready, name):
    for size in (DESK, PHONE):
        ready.set_viewport_size(size)
        before = ready.evaluate(HEIGHT, name)
        for knobs in ({knob.name: knob.default for knob in calculator(name).knobs}, *settings(name, 2)):
            if ready.evaluate(ASK.replace("3000", "100"), [name, {k: str(v) for k, v in knobs.items()}]):
                assert ready.evaluate(HEIGHT, name) == before, (size, knobs)


@every_calculator
def test_a_wrong_value_is_answered_beside_its_knob(ready, name):
    knob = next(knob for knob in calculator(name).knobs if isinstance(knob, Number))
    field = form(ready, name).locator(f"[name={knob.name}]")
    hint = ready.locator(f"#{field.get_attribute('aria-describedby')}")
    usual = hint.inner_text()
    field.fill(str(knob.high + 1))
    form(ready, name).get_by_text("Not computed").wait_for()
    assert re.search(f"^{knob.name}=.*; use ", hint.inner_text())
    assert field.get_attribute("aria-invalid") == "true"
    field.fill(str(knob.default))
    form(ready, name).get_by_text("Computed here").wait_for()
    assert field.get_attribute("aria-invalid") == "false"
    assert hint.inner_text() == usual


@every_calculator
def test_knobs_turn_by_keyboard_alone(ready, name):
    ready.evaluate("name => document.querySelector(`[data-live=${name}]`).scrollIntoView()", name)
    first = calculator(name).knobs[0]
    form(ready, name).locator(f"[name={first.name}]").focus()
    for knob in calculator(name).knobs:
        field = form(ready, name).locator(f"[name={knob.name}]")
        assert field.evaluate("field => field === document.activeElement"), knob.name
        before = field.input_value()
        ready.keyboard.press("ArrowUp" if isinstance(knob, Number) else "ArrowDown")
        if field.input_value() == before:  # the last of its choices
            ready.keyboard.press("ArrowUp")
        assert field.input_value() != before
        assert f"{name}.{knob.name}=" in ready.url
        ready.keyboard.press("Tab")
    form(ready, name).get_by_text("omputed").first.wait_for()


@every_calculator
def test_the_form_is_accessible_and_legible_in_light_in_dark_and_on_a_phone(ready, name):
    ready.evaluate(ASK, [name, {knob.name: str(knob.default) for knob in calculator(name).knobs}])
    ready.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text("utf8"))
    here = AXE.replace("document", f"document.querySelector('[data-live={name}]')")
    for look, size, theme in (("light", DESK, "light"), ("dark", DESK, "dark"), ("phone", PHONE, "dark")):
        ready.set_viewport_size(size)
        ready.evaluate(WEAR, theme)
        settle(ready)
        assert ready.evaluate(here, RULES[look]) == []
        for flaw in (FAINT, SMALL, CROWDED):
            assert ready.evaluate(flaw.replace("svg.plot", f"[data-live={name}] svg.plot")) == []
    assert ready.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_nobody_else_is_asked_and_nothing_goes_wrong(ready, address):
    assert not [url for url in ready.asked if not url.startswith((address, "data:", "blob:"))]
    assert ready.complaints == []


def test_a_shared_link_opens_with_its_knobs_and_computes(tab, address):
    chosen = {name: next(settings(name, 1)) for name in NAMES}
    link = "&".join(
        f"{name}.{knob}={quote(str(value))}" for name in NAMES for knob, value in chosen[name].items()
    )
    tab.goto(f"{address}book/all.html?{link}")
    for name in NAMES:
        form(tab, name).get_by_text("Computed here").wait_for(timeout=60_000)
        for knob, value in chosen[name].items():
            assert form(tab, name).locator(f"[name={knob}]").input_value() == str(value)
        assert same(calculator(name)(**chosen[name]), form(tab, name).evaluate("section => section.answer"))


def test_in_a_folder_a_form_rests_and_names_the_command(browser, site):
    tab = browser.new_page()
    complaints = []
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.goto((site / "book" / "roofline.html").as_uri())
    assert "make serve" in form(tab, "roofline").locator(".live-status").inner_text()
    assert form(tab, "roofline").locator("input").first.is_disabled()
    assert form(tab, "roofline").locator("svg.plot").is_visible()
    assert complaints == []
    tab.close()


def test_wrong_knobs_are_answered_as_json():
    assert '"wrong"' in forms.respond(calculator(NAMES[0]), {calculator(NAMES[0]).knobs[-1].name: "x"})
