"""The live forms in Chromium: the book's own Python, asked by knobs, in the reader's browser."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from random import Random
from urllib.parse import quote

import pytest
from test_site import AXE, CROWDED, FAINT, RULES, SMALL, WEAR, axe, settle

from lib import decide as deciding
from lib.decide import table, words
from lib.live import NAMES, Choice, Number, Refused, Text, calculator
from lib.live import decide as whole_form
from lib.page import forms
from lib.page.markup import typeset

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
PASTE = """(field, value) => {
  field.value = value;
  field.dispatchEvent(new Event("input", { bubbles: true }));
}"""
COUNT_QUESTIONS = """() => {
  self.sent = 0;
  const plain = Worker.prototype.postMessage;
  Worker.prototype.postMessage = function (...all) { self.sent++; plain.apply(this, all); };
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
        wrong = knob.high + 1 if isinstance(knob, Number) else "nothing of the kind"
        with pytest.raises(
            Refused, match="; use " if isinstance(knob, Text) else f"^{knob.name}=.*; use "
        ) as refused:
            calculator(name)(**{knob.name: wrong})
        assert list(refused.value.wrong) == [knob.name]


@pytest.mark.parametrize(
    "given", ["", ".", "x", "nan", "inf", "1.5", "0,8", "1,02", "1_0", "９", 0, 11, True, None]
)
def test_a_number_refuses_what_it_cannot_read(given):
    with pytest.raises(ValueError, match=r"^n=.* will not do; use a whole number, 1 to 10 s$"):
        Number("n", "N", "s", 5, 1, 10).read(given)


def test_a_number_is_read_as_a_page_gives_it():
    assert Number("n", "N", "", 5, 1, 10_000).read("1,024") == 1024
    assert Number("n", "N", "", 5, 0, 10, whole=False).read("2.5") == 2.5
    assert Number("n", "N", "", 5, 0, 5000).read(" 2e3 ") == 2000


def test_a_refusal_repeats_of_something_long_only_the_head():
    with pytest.raises(ValueError, match="9…") as refused:
        Number("n", "N", "s", 5, 1, 10).read("9" * 400)
    assert len(str(refused.value)) < 100


def test_an_optional_number_may_be_left_empty_or_zero():
    knob = Number("n", "N", "s", 5, 0, 10, zero="none")
    assert knob.read("") == knob.read("0") == 0
    assert knob.hint.startswith("0: none; 0 to 10 s")
    with pytest.raises(ValueError, match="use a whole number"):
        knob.read("x")


def test_a_text_is_read_without_its_edges_and_only_so_long():
    text = Text("t", "T", "hint", "example")
    assert text.read(" a\nb \n") == "a\nb"
    for wrong in ("x" * 100_001, None, 3):
        with pytest.raises(ValueError, match="use text of at most 100,000 characters"):
            text.read(wrong)


@pytest.mark.parametrize(
    ("name", "given", "knob", "says"),
    [
        ("multi_turn", {"model": "DeepSeek-V3"}, "gpus", "GPUs to a copy: 1 L40S has 43 GB to use"),
        ("multi_turn", {"gpus": "8"}, "gpus", "8 cannot share the 28 heads of Qwen2.5-7B"),
        ("multi_turn", {"first": 100_000}, "first", "but Qwen2.5-7B reads 32,768 at most"),
        ("kv_handoff", {"gpus": "8"}, "gpus", "8 cannot share the 28 heads of Qwen2.5-7B"),
        ("kv_handoff", {"tokens": 131_072}, "tokens", "Prompt: 131,072 tokens"),
        ("two_pools", {"model": "Qwen2.5-7B", "context": 40_000}, "context", "Context of a stream: 40,000"),
        ("two_pools", {"model": "Qwen2.5-7B", "prompt": 32_768}, "prompt", "Prompt and answer: 33,024"),
        ("two_pools", {"model": "Kimi K2", "gpu": "L40S"}, "gpu", "no copy of Kimi K2 starts"),
        ("two_pools", {"target": 1}, "target", "Between tokens at most: 1 ms"),
    ],
)
def test_forms_refuse_what_no_engine_would_start_in_the_words_of_their_knobs(name, given, knob, says):
    with pytest.raises(Refused, match=re.escape(says)) as refused:
        calculator(name)(**given)
    assert list(refused.value.wrong) == [knob]


def test_two_pools_prices_experts_that_a_token_meets_and_a_latent_that_every_gpu_keeps():
    wide = calculator("two_pools")(model="DeepSeek-V3", gpu="H200")["table"]["TP8"]
    assert 140 < wide[0] < 210  # ms of prefill: of 671 billion parameters a token meets 37
    assert wide[2:4] == [148, "memory"]  # (0.9 x 141 GB - 673 GB / 8) / (4,096 x 70,272 bytes)


def test_two_pools_gives_no_copy_where_heads_do_not_divide_and_counts_gpus_by_how_busy_they_are():
    answer = calculator("two_pools")(model="Qwen2.5-7B", prompt=8192)
    assert answer["table"]["TP8"][:2] == ["–", "–"]
    assert answer["table"]["TP8"][3] == "28 heads do not divide"
    prompts, busy = answer["table"]["TP1"], 2 * answer["table"]["TP1"][0] / 1e3
    assert prompts[1] == math.ceil(busy / 0.95)
    assert f"busy {100 * busy / prompts[1]:.0f} %" in answer["say"][0]


# ---- the whole form of the decision

CONFIG = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "num_hidden_layers": 28,
    "hidden_size": 3584, "num_attention_heads": 28, "num_key_value_heads": 4, "intermediate_size": 18944,
    "vocab_size": 152064, "torch_dtype": "bfloat16", "rope_theta": 1e6, "transformers_version": "4.43.1",
}  # fmt: skip
HEADER = "arrival_s,prompt_tokens,output_tokens\n"
decide = calculator("decide")


def asked(row: table.Row) -> dict[str, object]:
    """What to put into the form for a row of the guide's table; its model, GPU and link are the defaults."""
    case = row.case
    first = case.load.draw(case.load.rate, 1)[0]
    return {
        "rate": case.load.rate, "prompt": first.prompt_tokens, "output": first.output_tokens,
        "ttft": case.slo.ttft or 0, "itl": 1e3 * (case.slo.itl or 0), "tpot": 1e3 * (case.slo.tpot or 0),
        "handoff": 1e3 * (case.handoff_s or 0), "gpus": case.gpus, "new": case.new_tokens or 0,
        "cpu": 1e3 * (case.cpu_s_per_request or 0), "history": "yes" if case.history_can_change else "no",
    }  # fmt: skip


@pytest.mark.parametrize("row", table.ROWS, ids=lambda row: str(row.number))
def test_the_form_gives_the_chapters_answer_to_each_row(row):
    chapter, answer = deciding.decide(row.case), decide(**asked(row))
    assert answer["say"][0].lower().startswith(chapter.recommendation)
    assert answer["table"] == words.table(chapter)
    numbers = {fork.question: fork.number for fork in chapter.forks}
    shown = dict(zip(answer["more"]["question"], answer["more"]["number"], strict=True))
    assert {question: number for question, number in shown.items() if number != "–"} == numbers


def test_a_pasted_config_is_the_model_and_a_link_carries_what_counts_of_it():
    answer = decide(config=json.dumps(CONFIG, indent=2))
    assert [said.replace("qwen2:", "Qwen2.5-7B:") for said in answer["say"]] == decide()["say"]
    carried = answer["link"]["config"]
    assert json.loads(carried) == {key: CONFIG[key] for key in CONFIG if key not in WITHOUT}
    assert decide(config=carried)["table"] == answer["table"]


WITHOUT = ("architectures", "rope_theta", "transformers_version")


def test_a_pasted_recording_is_the_load_and_a_link_carries_a_short_one():
    rows = [f"{2.5 * i},{8000 + i},{200}" for i in range(40)]
    short = HEADER + "\n".join(rows)
    answer = decide(csv=short)
    assert "40 requests as recorded" in answer["say"][1]
    assert decide(csv=short.replace(",", "\t"))["table"] == answer["table"]  # as out of a spreadsheet
    assert answer["link"] == {"csv": short}
    long = HEADER + "\n".join(f"{2.5 * i:.6f},{8000 + i},{200}" for i in range(100))
    left = decide(csv=long)["link"]["csv"]
    assert left == "# 100 requests, too long for a link: paste the text again"
    with pytest.raises(Refused, match=r"^100 requests, too long for a link: paste") as refused:
        decide(csv=left)
    assert list(refused.value.wrong) == ["csv"]


@pytest.mark.parametrize(
    ("knobs", "place", "words"),
    [
        ({"config": "{"}, "config", "is no JSON"),
        ({"config": "[]"}, "config", "holds no object"),
        ({"config": json.dumps(CONFIG | {"hidden_size": None})}, "config", "hidden_size is missing"),
        ({"config": json.dumps(CONFIG | {"vocab_size": "many"})}, "config", "vocab_size='many'"),
        ({"config": json.dumps(CONFIG | {"quantization_config": "fp8"})}, "config", "use an object"),
        ({"config": json.dumps(CONFIG | {"hidden_size": 28 * 10**6}), "handoff": 0}, "degree", "GB usable"),
        ({"csv": HEADER + "0,5,5\n1,five,5"}, "csv", "five"),
        ({"csv": HEADER + "0,5\n1,5,5"}, "csv", "line 2: no output_tokens"),
        ({"csv": HEADER + "0,5,5\n0,5,5"}, "csv", "all requests arrive at once"),
        ({"csv": HEADER + "0,5,1\n1,5,1"}, "csv", "nothing is decoded"),
        ({"csv": HEADER + "\n".join(f"{i},5,5" for i in range(2001))}, "csv", "at most 2,000"),
        ({"csv": HEADER + "0,5,150000\n1,5,150000"}, "csv", "reads 32,768"),
        ({"model": "Llama-3.1-70B"}, "degree", r"141\.1 GB of weights .*use 4 or 8"),
        ({"gpus": 3, "degree": "2"}, "gpus", "use a multiple"),
        ({"degree": "8", "gpus": 8}, "degree", "28 heads, which 8 GPUs cannot share"),
        ({"link": "400 Gb/s RDMA"}, "link", "use a link of at most 200 Gb/s"),
        ({"new": 9000}, "new", "New tokens a turn: 9000 exceed"),
        ({"handoff": 1}, "handoff", "Handoff of a mean prompt's cache: 0.001 is less"),
        ({"ttft": 0, "itl": 0}, "ttft", "use at least one"),
        ({"gap": 10}, "gap", "use a gap of at least itl"),
        ({"prefill": 700}, "decode", "use both"),
        ({"decode": 22}, "prefill", "use both"),
        ({"prefill": 700, "decode": 10}, "decode", "needs at its peak"),
    ],
)
def test_what_cannot_be_is_said_beside_the_knob_that_it_is_about(knobs, place, words):
    with pytest.raises(Refused, match=words) as refused:
        decide(**knobs)
    assert list(refused.value.wrong) == [place]


def test_measured_steps_and_a_price_enter():
    assert "as calibrated" not in " ".join(decide(prefill=700, decode=22.5)["say"])
    table = decide(handoff=20, price=1.2)["table"]
    cost, rate = table["two pools"][-1], table["two pools"][-2]
    assert cost == pytest.approx(1e6 * 2 * 1.2 / 3600 / (rate * 256))


def test_another_split_than_the_best_is_tried():
    answer = decide(**asked(table.ROWS[1]), split=1)
    assert answer["table"]["two pools"] != decide(**asked(table.ROWS[1]), split=3)["table"]["two pools"]


def test_the_forms_questions_are_those_of_the_flow():
    asked_by_decide = {fork.question for row in table.ROWS for fork in deciding.decide(row.case).forks}
    assert asked_by_decide == set(whole_form.QUESTIONS)


@pytest.mark.parametrize(
    ("knobs", "place", "words"),
    [
        ({"tokens": 0, "streams": 0}, "tokens", "Prompt tokens in the step and streams are both 0"),
        ({"group": "8"}, "group", "GPUs to an engine: 8 do not divide the 28 heads"),
        ({"past": 40_000, "model": "Qwen3-8B"}, "past", "Tokens of that prompt before them: 40,000 and"),
        ({"context": 41_000, "model": "Qwen3-8B"}, "context", "use at most 40,960"),
    ],
)
def test_what_is_no_step_is_said_by_its_label(knobs, place, words):
    with pytest.raises(Refused, match=words) as refused:
        calculator("a_step")(**knobs)
    assert list(refused.value.wrong) == [place]


@pytest.mark.parametrize("knobs", [{}, {"model": "DeepSeek-V3", "group": "8"}, {"streams": 0, "tokens": 1}])
def test_the_bars_of_a_step_follow_one_another_and_are_its_table(knobs):
    answer = calculator("a_step")(**knobs)
    spans = sorted(
        span for mark in answer["plot"]["marks"] for span in zip(mark["x"], mark["x2"], strict=True)
    )
    assert spans[0][0] == 0
    assert all(end == pytest.approx(begin) for (_, end), (begin, _) in pairwise(spans))
    assert spans[-1][1] == pytest.approx(math.fsum(answer["table"]["time, ms"]))


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="use one of"):
        calculator("nothing")
    with pytest.raises(Refused, match="is no knob; use"):
        calculator(NAMES[0])(nothing=1)


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
    """Yield knobs that were drawn by chance, always the same, of which none is refused."""
    chance = Random(name)
    while count:
        drawn = {
            knob.name: within(knob, chance) if isinstance(knob, Number) else chance.choice(offered(knob))
            for knob in calculator(name).knobs
        }
        with suppress(ValueError):
            calculator(name)(**drawn)
            count -= 1
            yield drawn


def offered(knob: Choice | Text) -> tuple[str, ...]:
    """Return what a knob can be set to: a text most often to nothing."""
    return knob.choices if isinstance(knob, Choice) else ("", "", "", *PASTED[knob.name])


PASTED = {"config": [json.dumps(CONFIG)], "csv": [HEADER + "0,8192,256\n2.5,4096,300\n3,1000,40"]}


def within(knob: Number, chance: Random) -> float:
    """Return a value of a knob, near its default or anywhere; an optional one most often none."""
    if knob.zero and chance.random() < 0.7:
        return knob.default
    if not knob.whole:
        return round(chance.uniform(knob.low, knob.high), 3)
    return chance.randint(int(knob.low), int(min(knob.high, 4 * knob.default + 4)))


def test_a_form_shows_its_result_before_anyone_touches_it_and_loads_nothing(tab):
    for name in NAMES:
        shown = form(tab, name).inner_text()
        assert " ".join(typeset(calculator(name)()["say"][0]).split()) in " ".join(shown.split())
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
    for knobs in ({}, *settings(name, 4)):
        here = calculator(name)(**knobs)
        assert same(here, ready.evaluate(ASK, [name, {k: str(v) for k, v in knobs.items()}])), knobs


@every_calculator
def test_an_answer_moves_nothing_on_the_page(ready, name):
    for size in (DESK, PHONE):
        ready.set_viewport_size(size)
        before = ready.evaluate(HEIGHT, name)
        for knobs in ({knob.name: knob.default for knob in calculator(name).knobs}, *settings(name, 2)):
            assert ready.evaluate(ASK, [name, {k: str(v) for k, v in knobs.items()}])
            assert ready.evaluate(HEIGHT, name) == before, (size, knobs)


@every_calculator
def test_a_wrong_value_is_answered_beside_its_knob(ready, name):
    knob = next(knob for knob in calculator(name).knobs if isinstance(knob, Number))
    field = form(ready, name).locator(f"[name={knob.name}]")
    hint = ready.locator(f"#{field.get_attribute('aria-describedby')}")
    usual = hint.inner_text()
    field.fill(str(knob.high + 1))
    form(ready, name).get_by_text("Not computed").wait_for()
    assert f"“{knob.high + 1}” will not do; {knob.use}" == hint.inner_text().replace("\xa0", " ")
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
        keys = {Number: "ArrowUp", Choice: "ArrowDown", Text: "x"}
        ready.keyboard.press(keys[type(knob)])
        if field.input_value() == before:  # the last of its choices
            ready.keyboard.press("ArrowUp")
        assert field.input_value() != before
        assert (f"{name}.{knob.name}=" in ready.url) != isinstance(knob, Text)
        ready.keyboard.press("Tab")
    form(ready, name).get_by_text("omputed").first.wait_for()


WRONG = {
    "roofline": ("0,8", "eight", "9" * 400, "1e999", "-1", "", "1_000"),
    "decide": ("[" * 50_000, "{" * 101, "x" * 10**7),
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in WRONG for value in WRONG[name]])
def test_a_bad_value_gets_a_sentence_beside_its_knob_and_the_worker_never_hears_of_it(ready, name, value):
    assert ready.evaluate(ASK, [name, {knob.name: str(knob.default) for knob in calculator(name).knobs}])
    ready.evaluate(COUNT_QUESTIONS)
    knob = next(
        knob for knob in calculator(name).knobs if isinstance(knob, Text if name == "decide" else Number)
    )
    field = form(ready, name).locator(f"[name={knob.name}]")
    field.evaluate(PASTE, value)
    form(ready, name).get_by_text("Not computed").wait_for()
    said = ready.locator(f"#{field.get_attribute('aria-describedby')}").inner_text()
    assert "; use " in said
    assert len(said) < 120
    assert ready.evaluate("self.sent") == 0
    field.fill("")
    if isinstance(knob, Number):
        field.fill(str(knob.default))
    form(ready, name).get_by_text("Computed here").wait_for()


def test_a_long_computation_says_so_and_can_be_stopped(ready):
    slow, quick = form(ready, "decide"), form(ready, "roofline")
    knobs = {
        "model": "gpt-oss-20b",
        "gpu": "MI325X",
        "gpus": 12,
        "rate": 19.5,
        "prompt": 12444,
        "output": 492,
        "spread": 0.88,
        "itl": 5,
    }
    ready.evaluate("""knobs => {
      const form = document.querySelector("[data-live=decide] form");
      for (const knob in knobs) form.elements[knob].value = knobs[knob];
      form.dispatchEvent(new Event("input"));
    }""", knobs)  # fmt: skip
    slow.get_by_text("Computing…").wait_for()
    assert slow.get_attribute("aria-busy") == "true"
    slow.get_by_role("button", name="Stop").click()
    slow.get_by_text("Stopped. Below is the answer before.").wait_for()
    assert slow.get_attribute("aria-busy") == "false"
    ready.evaluate("document.querySelectorAll('.live form').forEach(form => form.reset())")
    quick.locator("input").first.press("ArrowUp")
    quick.get_by_text("Computed here").wait_for()
    slow.get_by_role("button", name="Try again").click()
    slow.get_by_text("Computed here").wait_for()


@pytest.mark.parametrize(
    "missing", ["size.json", "lib.zip", "pyodide.mjs", "pyodide.asm.wasm", "worker.js", "plot.umd.min.js"]
)
def test_a_form_says_that_a_download_failed_and_recovers(browser, address, missing):
    tab = browser.new_page()
    tab.route(re.compile(re.escape(missing)), lambda route: route.abort())
    tab.goto(f"{address}book/roofline.html")
    roofline = form(tab, "roofline")
    roofline.locator("input").first.press("ArrowUp")
    roofline.get_by_text("could not be loaded").wait_for()
    tab.unroute(re.compile(re.escape(missing)))
    roofline.get_by_role("button", name="Try again").click()
    roofline.get_by_text("Computed here").wait_for(timeout=90_000)
    tab.close()


def test_a_form_says_that_python_does_not_come_and_recovers(browser, address):
    tab = browser.new_page()
    tab.clock.install()
    tab.route(re.compile("lib.zip"), lambda route: None)
    tab.goto(f"{address}book/roofline.html")
    roofline = form(tab, "roofline")
    roofline.locator("input").first.press("ArrowUp")
    tab.wait_for_timeout(4000)
    tab.clock.fast_forward(25_000)
    roofline.get_by_text("Python does not come").wait_for()
    tab.unroute(re.compile("lib.zip"))
    roofline.get_by_role("button", name="Try again").click()
    roofline.get_by_text("Computed here").wait_for(timeout=90_000)
    tab.close()


def test_pasted_texts_stand_in_the_address_as_short_as_they_can(ready):
    assert ready.evaluate(ASK, ["decide", {"config": json.dumps(CONFIG), "csv": PASTED["csv"][0]}])
    assert "decide.config=" in ready.url
    assert "rope_theta" not in ready.url
    assert f"decide.csv={quote(HEADER[:9])}" in ready.url
    field = form(ready, "decide").locator("[name=config]")
    hint = ready.locator(f"#{field.get_attribute('aria-describedby')}")
    field.fill("{")
    form(ready, "decide").get_by_text("Not computed").wait_for()
    assert "config.json is no JSON" in hint.inner_text()
    assert "decide.config=" not in ready.url


def test_groups_of_knobs_are_announced_by_their_headings(ready):
    groups = form(ready, "decide").get_by_role("group")
    named = {group.evaluate("group => group.querySelector('legend')?.textContent") for group in groups.all()}
    assert named >= {"The model and the machine", "The load", "The targets", "What you measured", "Money"}


def test_the_forms_are_accessible_and_legible_in_light_in_dark_and_on_a_phone(ready):
    for name in NAMES:
        ready.evaluate(ASK, [name, {knob.name: str(knob.default) for knob in calculator(name).knobs}])
    ready.evaluate(axe())
    for look, size, theme in (("light", DESK, "light"), ("dark", DESK, "dark"), ("phone", PHONE, "dark")):
        ready.set_viewport_size(size)
        ready.evaluate(WEAR, theme)
        settle(ready)
        assert ready.evaluate(AXE.replace("document", "{include: [['.live']]}"), RULES[look]) == []
        for flaw in (FAINT, SMALL, CROWDED):
            assert ready.evaluate(flaw.replace("svg.plot", ".live svg.plot")) == []
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
