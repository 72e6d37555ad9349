"""Prose: which numerals a page says, what supports them, and that no place on a page hides one."""

import doctest
import re
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nbformat.v4 import new_output

from lib.page import figures, published, source
from lib.press import inprocess, prose, records, run
from lib.press.prose import formula, numerals, supports, words

HEADER = """---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
kernelspec:
  display_name: Python 3 (ipykernel)
  language: python
  name: python3
---

# A page

"""
CELL = "```{code-cell}\nf()\n```\n"


# ---- numerals


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("takes 24.5 ms, or 1,024 tokens.", ["24.5", "1,024"]),
        ("5ms 47% 8× 8x 16-token 4-bit 99th", ["5", "47", "8", "8", "16", "4", "99"]),
        ("42–51, 42-51, 42—51, 42 to 51", ["42", "51"] * 4),
        ("1/2 (3) [4] {5} 6|7 8=9 0.5·2 “10” '11' *12*", [*"123456789", "0.5", "2", "10", "11", "12"]),
        ("½ of it, and 2½", ["1", "2", "21", "2"]),
        ("10^9, 10⁹, 10⁻³, 2^30 and m²", ["10^9", "10^9", "10^-3", "2^30"]),
        ("1e9, 1.5e-3, 2E6", ["1e9", "1.5e-3", "2E6"]),
        ("−5 % and -7, but 3 - 4 and 5-", ["-5", "-7", "3", "4", "5"]),
        (".5 and 0.5", ["0.5", "0.5"]),
        ("5.\n6! 7? 8; 9: 10", ["5", "6", "7", "8", "9", "10"]),
        ("2026-09-29 at 23:59", ["2026", "09", "29", "23", "59"]),
        ("$5, €6, US$7, £8", ["5", "6", "7", "8"]),
        ("~14 ≈15 <16 >17 ≤18 ≥19 ±20 #21 §22 →23 @24 +25", [str(n) for n in range(14, 26)]),
        ("ca.700, e.g.5, ttft:700, n=5, TTFT>2, p≤3", ["700", "5", "700", "5", "2", "3"]),
        ("top-8 and sub-100 and mid-2026", ["8", "100", "2026"]),
        ("1…2 and 3...4", ["1", "2", "3", "4"]),
        ("５ and ٥", ["5", "٥"]),
        ("8 192 and 8\u202f192", ["8", "192", "8", "192"]),
        ("L40S’s, Qwen2.5-7B, Llama-3.1-70B, p99, TP8, bf16, H100, t0, N2, x_5, v0.11.2", []),
        ("none at all", []),
    ],
)
def test_numerals_of_a_text(text, found):
    assert numerals(text) == found


def test_names_are_recorded_and_are_no_claims():
    assert words("Qwen2.5-7B on an L40S (p99)") == ["Qwen2.5-7B", "L40S", "p99"]
    assert numerals("Qwen2.5-7B on an L40S (p99)") == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("24.5 ms, 14.1 GB and 362 TFLOP/s", ["24.5 ms", "14.1 GB", "362 TFLOP/s"]),
        ("47 % or 47% of 8 × 2", ["47 %", "47%", "8 ×", "2"]),
        ("419. Tokens, 5, tokens, 6 tokens", ["419", "5", "6 tokens"]),
        ("3 systems in 4 h", ["3", "4 h"]),
        ("−5 s", ["-5 s"]),
    ],
)
def test_words_carry_their_unit(text, found):
    assert words(text, units=True) == found


@given(
    st.text(alphabet="ab .,-–(5", max_size=12), st.integers(0, 9), st.text(alphabet="ab .,-–(5%", max_size=12)
)
def test_a_changed_digit_changes_the_words(before, digit, after):
    one, other = (words(f"{before}{d}{after}", units=True) for d in (digit, (digit + 1) % 10))
    assert one != other


@pytest.mark.parametrize(
    ("tex", "recorded", "claimed"),
    [
        (r"\frac{2P \cdot n}{2P} = n", "2P 2P", ""),
        (r"14{,}100 \times 10^9", "14,100 10^9", "14,100"),
        (r"x_{10} + 47\,\% ", "10 47", "10 47"),
        (r"\text{takes 24.5 ms}", "24.5", "24.5"),
        (r"2^{30} \ge 16", "2^30 16", "16"),
    ],
)
def test_formulas_claim_what_has_two_digits(tex, recorded, claimed):
    assert formula(tex) == recorded
    assert formula(tex, claims=True) == claimed


# ---- support


@pytest.mark.parametrize(
    ("shown", "said", "right"),
    [
        ("332.5", "332.5", True),
        ("332.47", "332.5", True),
        ("332.47", "332", True),
        ("332.47", "333", False),
        ("332.47", "330", False),
        ("332.4", "332.40", False),
        ("8", "8.0", False),
        ("8.0", "8", True),
        ("1.7", "2", False),
        ("19.7", "20", True),
        ("0.4", "0.44", False),
        ("0.45", "0.5", False),
        ("2.5", "3", False),
        ("12.5", "12", True),
        ("12.5", "13", True),
        ("8,513", "8513", True),
        ("8513", "8,514", False),
        ("1e9", "10^9", False),
        ("1,000,000,000", "10^9", True),
        ("1.5e3", "1,500", False),
        ("1,500", "1.5e3", True),
        ("-5", "5", True),
        ("5", "-5", False),
        ("-5.04", "-5.0", True),
        ("-5.04", "5.0", True),
        ("-5.06", "-5.0", False),
        ("09", "9", True),
    ],
)
def test_a_shown_numeral_supports_one_that_it_rounds_to(shown, said, right):
    assert supports(shown, said) is right


@given(st.decimals(10, 10**6, places=4), st.integers(0, 4))
def test_rounding_supports_and_a_step_further_does_not(value, places):
    rounded = round(value, places)
    step = (rounded - rounded + 1).scaleb(-places)
    assert supports(str(value), f"{rounded:.{places}f}")
    assert not supports(str(value), f"{rounded + 2 * step:.{places}f}")


# ---- pages


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    """A book of one page: a function from its text and its cells' outputs to its record and problems."""
    root = tmp_path_factory.mktemp("project")
    shutil.copy(run.ROOT / "_config.yml", root)
    (root / "_toc.yml").write_text("format: jb-book\nroot: book/page\nchapters:\n  - file: book/other\n")
    (root / "book" / "_assets").mkdir(parents=True)
    (root / "book" / "references.bib").write_text("@misc{knuth, title={Fascicle 7}, year={1974}}\n")
    (root / "book" / "other.md").write_text("# Another page of 99\n")
    page = root / "book" / "page.md"
    page.write_text("# A page\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "CACHE", root / "cache")
        patch.setattr(prose, "ALLOWED", root / "allowed.toml")
        for name in ("fingerprint", "state"):
            patch.setattr(run, name, lambda: "same")
        pages = inprocess.Book(root / "out", root)

        def read(text, *outputs, allowed="", header=HEADER):
            page.write_text(header + text)
            (root / "allowed.toml").write_text(allowed)
            notebook = run.read(page)
            codes = [cell for cell in notebook.cells if cell.cell_type == "code"]
            for cell, output in zip(codes, outputs, strict=True):
                cell.outputs = (
                    [output]
                    if isinstance(output, dict)
                    else [new_output("stream", name="stdout", text=output)]
                )
            run.keep(page, notebook, 0)
            return pages.read("book/page")

        yield read
        pages.close()


def said(record):
    """The numerals of the prose in a record."""
    return [n for line in record.splitlines() if line.startswith("~ ") for n in line[2:].split(" · ")]


def missing(problems):
    """The numerals that nothing supports."""
    found = (re.search(r"”: (\S+) is in no output here", problem) for problem in problems)
    return [match[1] for match in found if match]


HIDING_PLACES = {
    "paragraph": "about 5x",
    "emphasis": "*about **5***",
    "word with letters": "about 5ms",
    "heading": "## Takes 5",
    "list": "- a\n  - b 5",
    "numbered list": "1. a\n2. b 5",
    "table": "| a | b |\n|---|---|\n| c | 5 |",
    "table header": "| a | b 5 |\n|---|---|\n| c | d |",
    "list-table": "```{list-table} T\n* - a\n  - 5\n```",
    "table title": "```{list-table} T 5\n* - a\n  - b\n```",
    "term": "term 5\n: definition",
    "definition": "term\n: definition 5",
    "glossary": "```{glossary}\nterm\n  about 5\n```",
    "quote": "> about 5",
    "attribution": "```{epigraph}\nQuote\n\n-- someone 5\n```",
    "admonition": "```{note}\nabout 5\n```",
    "admonition title": "```{admonition} Title 5\nx\n```",
    "collapsed": "```{admonition} Title\n:class: dropdown\nabout 5\n```",
    "dropdown": "```{dropdown} Title\nabout 5\n```",
    "dropdown title": "```{dropdown} Title 5\nx\n```",
    "tab": "````{tab-set}\n```{tab-item} A\nabout 5\n```\n````",
    "tab label": "````{tab-set}\n```{tab-item} A 5\nx\n```\n````",
    "card": "```{card} Title\nabout 5\n```",
    "card title": "```{card} Title 5\nx\n```",
    "card footer": "````{card} Title\nx\n```{card-footer}\n5\n```\n````",
    "badge": "{bdg}`5`",
    "button": "```{button-ref} other\nSee 5\n```",
    "margin": "```{margin}\nabout 5\n```",
    "margin title": "```{margin} Title 5\nx\n```",
    "sidebar": "```{sidebar} Title\nabout 5\n```",
    "topic": "```{topic} Title 5\nx\n```",
    "rubric": "```{rubric} Title 5\n```",
    "footnote": "Text[^a].\n\n[^a]: about 5",
    "exercise": "```{exercise} Title\n:label: e\nabout 5\n```",
    "exercise title": "```{exercise} Title 5\n:label: e2\nx\n```",
    "solution": "```{solution} e\nabout 5\n```",
    "image": "![about 5](_assets/none.svg)",
    "image title": '![none](_assets/none.svg "about 5")',
    "figure": "```{figure} _assets/none.svg\n:alt: about 5\nCaption\n```",
    "caption": "```{figure} _assets/none.svg\n:alt: none\nCaption 5\n```",
    "legend": "```{figure} _assets/none.svg\n:alt: none\nCaption\n\nLegend 5\n```",
    "link": "[about 5](#here)",
    "link title": '[here](other.md "about 5")',
    "abbreviation": "{abbr}`TTFT (about 5 s)`",
    "hover text": '<abbr title="about 5 s">TTFT</abbr>',
    "raw HTML": "<p>about <b>5</b></p>",
    "alternative text in HTML": '<p><img src="x" alt="about 5"></p>',
    "raw directive": "```{raw} html\n<p>about 5</p>\n```",
    "literal": "`5 ms`",
    "code block": "```\nabout 5\n```",
    "text block": "```text\nabout 5\n```",
    "parsed literal": "```{parsed-literal}\nabout 5\n```",
    "line block": "```{line-block}\nabout 5\n```",
    "formula": "$5$",
    "displayed formula": "$$\nx = 5\n$$",
    "aligned formula": "\\begin{align}\nx &= 5\n\\end{align}",
    "term with its own text": "{term}`about 5 <term>`",
    "superscript": "x{sup}`5`",
    "subscript": "about{sub}` 5`",
    "field": "```{rst-class} x\n```\n\nabout 5",
    "centered": "```{centered} about 5\n```",
    "version": "```{versionadded} 5\n```",
    "comment in code": "```{code-cell}\nf()  # about 5\n```",
    "number of a list": "5. a\n6. b",
    "in brackets": "(5)",
    "in quotes": "“5”",
    "percent": "5%",
    "times": "5×",
    "range": "0–5",
    "negative": "−5 %",
    "date": "at 00:5",
    "unit": "5GB/s",
    "fraction": "5/0",
    "power of ten": "5e0",
}
# A numeral of three digits for each place, so that one page holds them all.
NUMBERED = {place: (text, f"{number}") for number, (place, text) in enumerate(HIDING_PLACES.items(), 101)}
QUIET = {"superscript"}  # x^5 is a name: recorded, and no claim


@pytest.fixture(scope="module")
def everywhere(book):
    """The record and the unsupported numerals of a page that has a numeral in every hiding place."""
    record, problems = book("\n\n".join(text.replace("5", number) for text, number in NUMBERED.values()), "")
    return record, missing(problems)


@pytest.mark.parametrize("place", HIDING_PLACES)
def test_a_numeral_is_recorded_and_needs_support_wherever_it_stands(everywhere, place):
    (record, unsupported), (_, number) = everywhere, NUMBERED[place]
    assert number in record
    assert (number in [n.removeprefix("-").removesuffix("e0") for n in unsupported]) != (place in QUIET)


UNSEEN = {
    "comment": "% about 5",
    "HTML comment": "<!-- about 5 -->",
    "HTML comment in a line": "a <!-- about 5 --> b",
    "address": "[the guide](https://example.org/5)",
    "footnote number": "Text[^5].\n\n[^5]: note",
    "LaTeX only": "```{raw} latex\nabout 5\n```",
}


def test_what_no_reader_sees_is_no_claim(book):
    record, problems = book("\n\n".join(UNSEEN.values()))
    assert said(record) == []
    assert missing(problems) == []


def test_the_description_for_search_engines_is_prose(book):
    header = HEADER.replace(
        "\n---\n\n# A", '\nmyst:\n  html_meta:\n    "description": "about 5 s"\n---\n\n# A'
    )
    record, problems = book("x", header=header)
    assert said(record) == ["5 s"]
    assert missing(problems) == ["5"]


def test_a_page_without_cells_is_read_too(book):
    record, problems = book("About 5.", header="# Title\n\n")
    assert record == "## Title\n~ 5\n"
    assert missing(problems) == ["5"]


def test_prose_stands_in_the_record_after_the_output_that_it_follows(book):
    record, problems = book(f"Ask 7.\n\n{CELL}\nRead 7.25.\n\n## Part\n\n{CELL}\nRead 8.", "7.25", "8")
    assert record == ("## A page\n~ 7\n>>> f()\n    7.25\n~ 7.25\n## Part\n>>> f()\n    8\n~ 8\n")
    assert missing(problems) == ["7"]  # one digit is not a rounding


def test_a_section_speaks_for_its_parts_only_upwards(book):
    text = f"12 and 13.\n\n## One\n\n{CELL}\nAt 13.\n\n### Deeper\n\nAt 12.\n\n## Two\n\n{CELL}\nAt 12."
    _, problems = book(text, "12", "13")
    assert [p.split(": ")[0] for p in problems] == [
        "page, section “One”",
        "page, section “Deeper”",
        "page, section “Two”",
    ]
    assert missing(problems) == ["13", "12", "12"]


def html(markup):
    return new_output("display_data", {"text/html": markup, "text/plain": ""})


def shown(thing):
    data, metadata = thing._repr_mimebundle_()
    return new_output("display_data", data, metadata=metadata)


def test_titles_and_alternative_texts_of_figures_claim_and_do_not_support(book):
    figure = figures.draw(lambda axes: axes.text(0, 0, "33"), "Rises to 31", "up to 32", {"x": ["y"]})
    _, problems = book(f"{CELL}\n31, 32, 33.", shown(figure))
    assert missing(problems) == ["31", "32", "31", "32"]


def with_a_number():
    return 43


def test_ticks_plotted_data_and_shown_source_support_nothing(book):
    tick = '<svg><g id="xtick_1"><g id="text_1"><text>41</text></g></g></svg>'
    _, problems = book(
        CELL + CELL + CELL + "\n41, 42, 43.",
        html(tick),
        shown(figures.draw(lambda axes: axes.plot([42], [1]), "T", "A", {"x": ["y"]})),
        shown(source(with_a_number)),
    )
    assert missing(problems) == ["41", "42", "43"]


def test_captions_of_figures_are_read_after_the_figure(book):
    text = '```{code-cell}\n:mystnb:\n:  figure:\n:    name: fig-x\n:    caption: "At 24 ms, 25."\nf()\n```\n'
    record, problems = book(text, html("<p>24</p>"))
    assert record == "## A page\n>>> f()\n    24\n~ 24 ms · 25\n"
    assert missing(problems) == ["25"]


def test_gated_solutions_with_cells_are_read(book):
    text = (
        "```{exercise} Try\n:label: e\n12?\n```\n\n```{solution-start} e\n:class: dropdown\n```\n\n"
        f"{CELL}\nIt is 12, not 13.\n\n```{{solution-end}}\n```\n"
    )
    record, problems = book(text, "12")
    assert record == "## A page\n~ 12\n>>> f()\n    12\n~ 12 · 13\n"
    assert missing(problems) == ["13"]


def test_guesses_are_recorded_and_free(book):
    record, problems = book("```{admonition} Guess 3\n:class: guess\n10, 20 or 30?\n```")
    assert said(record) == ["3", "10", "20", "30"]
    assert problems == []


# ---- citations


@pytest.mark.parametrize(
    "sentence",
    [
        "The guide says 1.3 s [here](https://example.org).",
        "It takes 1.3 s {cite}`knuth`.",
        "[1.3 s](https://example.org).",
    ],
)
def test_a_citation_carries_its_sentence(book, sentence):
    record, problems = book(sentence)
    assert said(record)[0] == "1.3 s"
    assert missing(problems) == []


@pytest.mark.parametrize(
    "text",
    [
        "[Source](https://example.org). It takes 77 s.",
        "[Source](https://example.org). 77 requests failed.",
        "It takes 77 s. [Source](https://example.org) says so.",
        "It takes 77 s! ([Source](https://example.org).)",
        "- [Source](https://example.org)\n- 77 s",
        "| [Source](https://example.org) | 77 s |\n|---|---|\n| a | b |",
        "77 s, see [another section](#here).",
        "77 s, see {doc}`other`.",
    ],
)
def test_a_citation_carries_no_other_sentence(book, text):
    assert "77" in missing(book(text)[1])


def test_titles_that_sphinx_fills_in_are_checked_on_their_own_page(book):
    record, problems = book("See {doc}`other` and {ref}`there`.\n\n(there)=\n## Part")
    assert said(record) == []
    assert missing(problems) == []


def test_the_reference_list_is_recorded(book):
    record, problems = book("{cite}`knuth`\n\n```{bibliography}\n```")
    assert {"7", "1974"} <= set(said(record))
    assert missing(problems) == []


# ---- the allow-list


def test_an_allowed_phrase_carries_itself_and_shows_in_the_record(book):
    allowed = '[everywhere]\n"16 bits" = "a format"\n[page]\n"8 rows" = "a"\n[other]\n"9 rows" = "b"\n'
    record, problems = book(
        "16 bits, 8 rows, 9 rows, 16 others, 116 bits, 16 bitsets, 0.16 bits.", allowed=allowed
    )
    assert missing(problems) == ["9", "16", "116", "16", "0.16"]
    assert list(records.allowances(record)) == ["16 bits", "8 rows"]


def test_an_allowed_phrase_that_an_output_supports_is_not_needed(book):
    record, problems = book(f"{CELL}\n16 bits.", "16", allowed='[everywhere]\n"16 bits" = "a format"\n')
    assert problems == []
    assert list(records.allowances(record)) == []


def test_the_longest_phrase_goes_first(book):
    allowed = '[everywhere]\n"PCIe 4.0" = "a name"\n"PCIe 4.0 x16" = "a longer name"\n'
    assert list(records.allowances(book("PCIe 4.0 x16.", allowed=allowed)[0])) == ["PCIe 4.0 x16"]


# ---- what goes wrong elsewhere


def test_warnings_of_sphinx_are_problems(book):
    assert any("nosuch" in problem for problem in book("{nosuch}`5`")[1])


def test_the_examples_in_the_docstrings_hold():
    for module in (prose, published):
        failed, tried = doctest.testmod(module)
        assert tried
        assert not failed


# ---- words that state a size


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("twice as long, Double the load", ["twice", "double"]),
        ("half of it, a third, a quarter of them", ["half", "a third", "a quarter"]),
        ("an order of magnitude more, hardly any left", ["an order of magnitude", "hardly any"]),
        ("takes ten\ntimes as much, sevenfold", ["ten times", "sevenfold"]),
        ("half a minute, half written, a half-written one, a tenth of a second", []),
        ("a fifth step, a third GPU", []),
        ("a fifth more traffic", ["a fifth"]),
    ],
)
def test_words_that_state_a_size_are_found_and_ordinals_and_times_are_not(text, found):
    assert prose.sizes(text) == found


@pytest.mark.parametrize(
    ("sentence", "output", "fine"),
    [
        ("It is twice as long.", "ratio 2", True),
        ("It is twice as long.", "ratio 2.4", False),
        ("A third of them fail.", "33.4 %", True),
        ("A third of them fail.", "40 %", False),
        ("Hardly any of them fail.", "0.1 %", False),
        ("Twice as long, says its author \x01.", "", True),
        ("Nobody waits twice.", "", True),  # allowed below
    ],
)
def test_a_word_that_states_a_size_needs_its_numeral_in_the_section(sentence, output, fine):
    section = prose.Section("A", [output], [sentence])
    found = prose.oversized("page", section, ["Nobody waits twice"])
    assert all(allowed for _, allowed in found) == fine


def test_pages_once_held_to_their_sizes_stay_so():
    assert {"balance", "chunking", "goodput", "intro", "one_long_prompt", "takeaways"} <= prose.SIZED
