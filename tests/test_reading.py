"""Each page says how long it takes, and is short enough to be read at one go."""

import ast
import builtins

import pytest

from lib.press import contents, reading, run

BOOK = run.ROOT / "book"
TIMED = [name for name in contents.chapters() if "**Takes** " in (BOOK / f"{name}.md").read_text("utf8")]


def page(tmp_path, text):
    path = tmp_path / "page.md"
    path.write_text((BOOK / "roofline.md").read_text("utf8").partition("\n# ")[0] + "\n" + text, "utf8")
    return path


def test_words_of_prose_count_and_addresses_options_and_names_of_roles_do_not(tmp_path):
    text = "# One two\n\nA {term}`step <engine step>` and [a link](https://a.test/b).\n\n"
    figure = "```{code-cell}\n1 + 1\n```\n\n```{admonition} Guess first\n:class: guess\nThree?\n```\n"
    assert reading.length(page(tmp_path, text + figure)) == (2 + 5 + 1, 1)


def test_what_comes_after_the_heading_of_the_exercises_does_not_count(tmp_path):
    short = page(tmp_path, "# One two\n\nThree.\n")
    assert reading.length(short) == (3, 0)
    longer = page(tmp_path, "# One two\n\nThree.\n\n## Try it\n\nFour.\n\n```{code-cell}\n1\n```\n")
    assert reading.length(longer) == (3, 0)


@pytest.mark.parametrize("name", TIMED)
def test_a_page_says_how_long_it_takes(name):
    text = (BOOK / f"{name}.md").read_text("utf8")
    assert f"**Takes** {reading.takes(*reading.length(BOOK / f'{name}.md'))}." in text


@pytest.mark.parametrize("name", TIMED)
def test_a_page_is_at_most_1600_words_before_its_exercises(name):
    assert reading.length(BOOK / f"{name}.md")[0] <= reading.LONGEST


# ---- open cells can be read without opening folded ones

LEANING = {  # pages whose open cells still need a name that only a folded one binds: this may only shrink
    "a_step", "decide", "fleet", "measured", "vllm_rules",
}  # fmt: skip
CHAPTERS = [
    str(path.relative_to(BOOK).with_suffix("")) for path in BOOK.rglob("*.md") if run.is_chapter(path)
]


def left_behind(tree):
    """Return the names that a cell binds for later ones."""
    found = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        else:
            found |= {name.id for name in ast.walk(node) if stored(name)}
    return found


def stored(node):
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def needed(tree):
    """Return the names that a cell takes from earlier ones."""
    nodes = list(ast.walk(tree))
    used = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    own = {node.id for node in nodes if stored(node)} | {
        node.arg for node in nodes if isinstance(node, ast.arg)
    }
    return used - own - left_behind(tree) - set(dir(builtins))


def leaning(cells):
    """Return the names that an open cell needs and only a folded one before it binds."""
    opened, folded, found = set(), set(), set()
    for source, hidden in cells:
        tree = ast.parse(source)
        if hidden:
            folded |= left_behind(tree)
            continue
        found |= needed(tree) & folded - opened
        opened |= left_behind(tree)
    return found


def test_a_name_that_only_a_folded_cell_binds_is_found_where_an_open_one_needs_it():
    assert leaning([("a = 1", True), ("print(a)", False)]) == {"a"}
    assert leaning([("def f(x):\n    return x", True), ("y = [f(z) for z in range(3)]", False)]) == {"f"}
    assert not leaning([("a = 1", True), ("a = 2", False), ("print(a)", False)])
    assert not leaning([("import os", False), ("import os", True), ("os.getcwd()", False)])


@pytest.mark.parametrize("name", sorted(set(CHAPTERS) - LEANING))
def test_an_open_cell_needs_no_name_that_only_a_folded_one_binds(name):
    cells = [cell for cell in run.read(BOOK / f"{name}.md").cells if cell.cell_type == "code"]
    assert not leaning([(cell.source, "hide-input" in cell.metadata.get("tags", ())) for cell in cells])
