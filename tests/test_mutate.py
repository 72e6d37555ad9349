"""Mutation: where digits stand, what depends on one, and that planted slips are caught or printed."""

import dataclasses
import itertools
import os
import re
import shutil
import subprocess
import sys

import pytest

from lib.press import run
from tools import mutate
from tools.mutate import Mutant, Seen, Verdict, numerals

# ---- where digits stand


def marked(text, places):
    """The text with the digits at the places in brackets."""
    found = set(places)
    return "".join(f"<{c}>" if i in found else c for i, c in enumerate(text))


def test_values_of_claimed_sections_of_toml_are_numerals_and_keys_are_not():
    text = (
        '[one]\nms_at_10 = 12  # not 13\nrows = ["8,192 at 1.5"]\nx = { TP4 = 7.0, "8 x" = 9 }\n'
        '[one."part.2"]\nlarge = 362e12\n[two]\nx = 5\n'
    )
    assert marked(text, numerals.in_toml(text, {"one"})) == (
        '[one]\nms_at_10 = 1<2>  # not 13\nrows = ["8,19<2> at 1.<5>"]\nx = { TP4 = 7.<0>, "8 x" = <9> }\n'
        '[one."part.2"]\nlarge = 36<2>e12\n[two]\nx = 5\n'
    )


def test_fields_of_bibtex_are_numerals_and_keys_are_not():
    text = "@misc{knuth74,\n  year = {1974},\n  url = {https://x.org/2}\n}\n"
    assert marked(text, numerals.in_bibtex(text)) == (
        "@misc{knuth74,\n  year = {197<4>},\n  url = {https://x.org/<2>}\n}\n"
    )


def test_numbers_of_python_are_numerals_and_strings_comments_and_names_are_not():
    text = 'x1 = 12 * 1.5e-3  # 7\ny = f"{x1} 8"\n"""é 9"""; z = 1_000 + 2j\n'
    assert marked(text, numerals.in_python(text)) == (
        'x1 = 1<2> * 1.<5>e-3  # 7\ny = f"{x1} 8"\n"""é 9"""; z = 1_00<0> + 2j\n'
    )


def test_what_a_page_says_are_numerals_and_targets_options_and_code_are_not():
    text = """---
name: python3
---

# Takes 12 ms

(label-1)=
A [link 2](https://x.org/3#4), {doc}`page5`, {cite}`knuth74`, a note[^6] <!-- 7 -->, $x = 8$, `9 ms`.

% 10
```{figure} _assets/x11.svg
:name: fig-12
:alt: rises to 13
Caption 14
```

```{code-cell}
:tags: [hide-input]
:mystnb:
:  figure:
:    name: fig-15
:    caption: "é at 16"
counts = [17, 18]
figures.draw(plot, "title 19", alt="é 20 "
    "and 21", data={"x": [22]})
```
"""
    places = list(numerals.in_prose(text))
    shown = marked(text, [place for place, _ in places])
    assert re.findall(r"\d*<\d>", shown) == "1<2> <2> <8> <9> 1<3> 1<4> 1<6> 1<9> 2<0> 2<1>".split()  # noqa: SIM905
    assert "".join(text[place] for place, cells in sorted(places) if cells) == "901"


@pytest.mark.parametrize(
    ("digit", "step", "new"), [("4", 1, "5"), ("4", -1, "3"), ("9", 1, "8"), ("0", -1, "1")]
)
def test_a_mutant_changes_one_digit_by_one(tmp_path, digit, step, new):
    (tmp_path / "x.py").write_text(f"a\n  b = 1{digit}\n")
    one = mutate.mutant(tmp_path, "lib", "x.py", 9, step)
    assert (one.line, one.text, one.old, one.new) == (2, f"b = 1{digit}", digit, new)
    assert one.after(f"a\n  b = 1{digit}\n") == f"a\n  b = 1{new}\n"


def test_a_sample_depends_on_its_seed_alone_and_takes_equally_of_each_kind():
    one, same, other = (mutate.sample(run.ROOT, 40, seed, {"lib/data/published.toml"}) for seed in (0, 0, 1))
    assert one == same != other
    assert [m.kind for m in one] == [kind for kind in mutate.KINDS for _ in range(8)]
    assert len(set(one)) == 40
    assert {abs(int(m.old) - int(m.new)) for m in one if m.kind != "conclusions"} == {1}


def test_words_of_a_conclusion_and_signs_of_what_it_asks_are_turned_round():
    cell = """More is more.

```{code-cell}
:tags: [hide-input]
from lib.x import shared

def holds(world):
    more = shared(world, 256) <= apart(world)
    return more and all([world.gpu is L40S])

conclusion("One pool keeps more at least on an L40S", holds, where="more")
```

```{code-cell}
x = min(1, 2) < 3
```
"""
    turns = [numerals.turned(cell, place) for place in sorted(numerals.in_conclusions(cell))]
    assert turns == [
        ("shared(", "apart("),
        ("world, 256", "world, 2048"),
        ("<=", ">="),
        ("apart(", "shared("),
        ("all(", "any("),
        ("is L40S", "is not L40S"),
        ("pool", "split"),
        ("more", "fewer"),
        ("at least", "at most"),
        ("L40S", "A100"),
    ]


def test_a_conclusion_turned_round_changes_that_word_alone(tmp_path):
    text = '```{code-cell}\nconclusion("Two wins at most", holds)\n```\n'
    (tmp_path / "x.md").write_text(text)
    (_, place) = sorted(numerals.in_conclusions(text))
    one = mutate.mutant(tmp_path, "conclusions", "x.md", place, 1, cells=True)
    assert one.after(text) == text.replace("at most", "at least")
    assert mutate.depend(tmp_path, dataclasses.replace(one, path="book/x.md"), {}) == ["cells x"]


@pytest.mark.parametrize(("caught", "of", "enough"), [(19, 20, True), (18, 20, False)])
def test_of_conclusions_95_percent_have_to_be_caught(caught, of, enough):
    digit = Verdict(Mutant("data", "a.toml", 5, "1", "2", 1, "x = 1"), "cells page")
    turned = Mutant("conclusions", "book/x.md", 5, "<", ">", 1, "a < b")
    found = [Verdict(turned, "cells x" if i < caught else "") for i in range(of)]
    assert mutate.enough([digit] * 100 + found) == enough


# ---- processes


def test_a_forked_call_answers_or_its_exception_or_its_time_out_does():
    assert mutate.forked(lambda: {"complaint": "", "x": 1}, 9)["x"] == 1
    assert mutate.forked(lambda: {}[7], 9)["complaint"] == "KeyError(7)"
    assert mutate.forked(lambda: max(itertools.count()), 1)["complaint"] == "computed for too long"
    assert mutate.forked(lambda: os._exit(3), 9)["complaint"] == "the process died"


@pytest.mark.parametrize(("line", "function"), [(1, 0), (3, 0), (4, 3), (6, 5), (7, 3), (8, 0)])
def test_a_line_belongs_to_the_innermost_function_whose_body_it_is_in(line, function):
    text = "a = 1\n@b\ndef c(d=2):\n    e = 3\n    def f(g):\n        return 4\n    return 5\nh = 6\n"
    assert mutate.around(text, line) == function


def test_what_is_quick_is_run_first_and_what_takes_too_long_not_at_all(tmp_path):
    (tmp_path / "book" / "printed").mkdir(parents=True)
    for page in ("long", "slow", "quick", "other"):
        (tmp_path / "book" / "printed" / f"{page}.txt").write_text("")
    (tmp_path / "x.py").write_text("def f():\n    return 1\n")
    one = mutate.mutant(tmp_path, "lib", "x.py", 20, 1)
    calls = frozenset({("x.py", 1)})
    seen = {
        "cells long": Seen(mutate.BUDGET - 1, calls),
        "cells slow": Seen(4.0, calls),
        "cells quick": Seen(0.5, calls),
        "cells other": Seen(0.1),
        "test t.py": Seen(7.0, calls),
        "test t.py::other": Seen(3.0, start=2.0),
        "test t.py::slow": Seen(1.5, calls, start=2.0),
        "test t.py::quick": Seen(0.5, calls, start=2.0),
        "test u.py": Seen(5.0),
        "test u.py::far": Seen(4.0, start=1.0),
    }
    assert mutate.steps(tmp_path, one, seen) == (
        {"cells quick": 0.5, "test t.py::quick t.py::slow": 4.0, "cells slow": 4.0, "test t.py::other": 5.0},
        ["cells long"],
    )


# ---- shares


@pytest.mark.parametrize(
    ("caught", "of", "low", "high"),
    [
        (0, 0, 0, 1),
        (0, 10, 0, 0.2775),
        (10, 10, 0.7225, 1),
        (5, 10, 0.2366, 0.7634),
        (285, 300, 0.9192, 0.9694),
    ],
)
def test_wilson_s_interval(caught, of, low, high):
    assert mutate.wilson(caught, of) == pytest.approx((low, high), abs=1e-4)


def test_the_report_counts_by_kind_and_prints_every_survivor():
    dead = Verdict(Mutant("data", "a.toml", 5, "1", "2", 1, "x = 1"), "cells page", {"cells page": 1.0})
    alive = Verdict(Mutant("lib", "lib/x.py", 5, "1", "2", 7, "y = 1"))
    tests = {"test tests/test_x.py::test_a tests/test_x.py::test_b": 2.0}
    late = Verdict(Mutant("lib", "lib/x.py", 5, "1", "2", 8, "z = 1"), "", tests, ["cells page"])
    lines = mutate.report([dead, alive, late]).splitlines()
    assert [line.split(",")[0].split() for line in lines[:6]] == [
        ["data", "1", "of", "1", "caught:", "100.0%"],
        ["lib", "0", "of", "2", "caught:", "0.0%"],
        ["prose", "0", "of", "0", "caught:", "0.0%"],
        ["records", "0", "of", "0", "caught:", "0.0%"],
        ["conclusions", "0", "of", "0", "caught:", "0.0%"],
        ["all", "1", "of", "3", "caught:", "33.3%"],
    ]
    assert lines[6:] == [
        "survived: lib/x.py:7: y = 1",
        "          1 -> 2; ran nothing, as nothing depends on it",
        "survived: lib/x.py:8: z = 1",
        "          1 -> 2; ran test tests/test_x.py; had no time for cells page",
    ]


# ---- a small project, mutated for real

TOY = '''"""A toy model."""

from dataclasses import dataclass

SPEED = 3
FORGOTTEN = 4


@dataclass(frozen=True)
class World:
    """A world."""

    name: str
    size: int


WORLDS = World("one", 6), World("two", 9)


def product(x: int) -> int:
    """Return a product."""
    return x * 12


def plus(x: int) -> int:
    """Return a sum that no page shows."""
    return x + 5


def unused() -> int:
    """Return what nobody asks for."""
    return 7
'''
PAGE = """---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
kernelspec:
  display_name: Python 3 (ipykernel)
  language: python
  name: python3
---

# A product

```{code-cell}
:mystnb:
:  figure:
:    name: fig-x
:    caption: "It is 36."
from lib.page import figures, published
from lib.toy import SPEED, product

figures.draw(lambda axes: axes.plot([1, 2]), "t", alt="Shows 36", data={"x": [product(SPEED)]})
```

The product is 36. A large one is more.

```{code-cell}
from lib.page import conclusion
from lib.toy import WORLDS

def holds(world):
    return world.size > 5

conclusion("A large one is more", holds, worlds=WORLDS)
```

```{code-cell}
published.compare("toy", product=product(SPEED))
```
"""
TEST = """from lib.toy import plus

def test_plus():
    assert plus(1) == 6
"""
RECORD = """
from lib.press import inprocess, records, run
page = run.ROOT / "book" / "page.md"
notebook = run.read(page)
run.keep(page, inprocess.execute(notebook), 0)
book = inprocess.Book(run.ROOT / "_build" / "out")
for name in ("page", "references"):
    text, problems = book.read(f"book/{name}")
    assert not problems, problems
    records.write(run.ROOT / "book" / f"{name}.md", text)
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A book of one chapter with its own little library, recorded."""
    root = tmp_path_factory.mktemp("toy")
    for name in ("_config.yml", "pyproject.toml", "lib/__init__.py", "lib/data/__init__.py", "book/_assets"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (run.ROOT / name).is_dir() else shutil.copy)(run.ROOT / name, root / name)
    for name in ("lib/page", "lib/press", "tools"):
        shutil.copytree(run.ROOT / name, root / name)
    (root / "tests").mkdir()
    files = {
        "_toc.yml": "format: jb-book\nroot: book/page\nchapters:\n  - file: book/references\n",
        "lib/toy.py": TOY,
        "lib/data/published.toml": "[toy]\nproduct = 36\n",
        "book/page.md": PAGE,
        "book/references.md": "# References\n\n```{bibliography}\n:all:\n```\n",
        "book/references.bib": "@misc{knuth,\n  title = {A book},\n  year = {1974},\n}\n",
        "tests/test_toy.py": TEST,
    }
    for name, text in files.items():
        (root / name).write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(root)}
    subprocess.run([sys.executable, "-c", RECORD], env=environment, check=True, cwd=root)
    return root


@pytest.fixture(scope="module")
def workers(project):
    """One warm process in a copy of that book."""
    with mutate.Workers(project, 1) as workers:
        yield workers


def planted(root, kind, path, before, cells=False):
    """The mutant of the digit just before the `^` in a piece of a file."""
    text = (root / path).read_text()
    piece = before.replace("^", "")
    assert text.count(piece) == 1
    return mutate.mutant(root, kind, path, text.index(piece) + before.index("^") - 1, 1, cells)


def turned(root, before, piece):
    """The mutant of a conclusion that turns what stands after a piece of the page."""
    text = (root / "book" / "page.md").read_text()
    assert text.count(before + piece) == 1
    return mutate.mutant(
        root, "conclusions", "book/page.md", text.index(before + piece) + len(before), 1, cells=True
    )


def test_planted_slips_of_every_kind_are_caught_and_the_unused_one_survives(project, workers):
    mutants = {
        "data": planted(project, "data", "lib/data/published.toml", "product = 36^"),
        "reference": planted(project, "data", "book/references.bib", "1974^"),
        "constant": planted(project, "lib", "lib/toy.py", "SPEED = 3^"),
        "in a function": planted(project, "lib", "lib/toy.py", "x * 12^"),
        "tested": planted(project, "lib", "lib/toy.py", "x + 5^"),
        "prose": planted(project, "prose", "book/page.md", "product is 36^"),
        "caption": planted(project, "prose", "book/page.md", "It is 36^"),
        "alternative": planted(project, "prose", "book/page.md", "Shows 36^", cells=True),
        "record": planted(project, "records", "book/printed/page.txt", "product | 36^ | 36"),
        "unused": planted(project, "lib", "lib/toy.py", "return 7^"),
        "forgotten": planted(project, "lib", "lib/toy.py", "FORGOTTEN = 4^"),
        "conclusion": turned(project, "world.size ", "> 5"),
        "its sentence": turned(project, '"A large one is ', "more"),
    }
    found = {v.mutant: v for v in mutate.verdicts(project, lambda _: list(mutants.values()), workers)}
    caught = {name: found[one].by for name, one in mutants.items()}
    assert caught == {
        "data": "cells page",
        "reference": "page references",
        "constant": "cells page",
        "in a function": "cells page",
        "tested": "test tests/test_toy.py::test_plus",
        "prose": "page page",
        "caption": "page page",
        "alternative": "cells page",
        "record": "page page",
        "unused": "",
        "forgotten": "",
        "conclusion": "cells page",
        "its sentence": "cells page",
    }
    assert found[mutants["unused"]].ran == {}
    assert set(found[mutants["forgotten"]].ran) == {"cells page", "test tests/test_toy.py::test_plus"}
    text = mutate.report(list(found.values()))
    assert f"survived: lib/toy.py:{TOY[: TOY.index('return 7')].count(chr(10)) + 1}: return 7" in text
    assert (project / "lib" / "toy.py").read_text() == TOY


def test_a_book_that_fails_unchanged_is_no_place_to_count(project, workers):
    path = workers.copies[0] / "book" / "printed" / "page.txt"
    text = path.read_text()
    path.write_text(text.replace("36", "35"))
    with pytest.raises(
        ValueError, match=r"fails without any mutant(.|\n)*cells page(.|\n)*-.*35(.|\n)*page page"
    ):
        list(mutate.verdicts(project, lambda _: [], workers))
    path.write_text(text)


def test_every_module_that_computes_is_sampled_wherever_it_lies():
    names = {path.relative_to(run.ROOT).as_posix() for path in mutate.models(run.ROOT)}
    assert {"lib/roofline.py", "lib/live/roofline.py", "lib/decide/case.py"} <= names
    assert not any(re.match("lib/(page|press)/", name) for name in names)
