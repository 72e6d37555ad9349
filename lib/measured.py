"""What others measured, and what this book predicts for it.

`compare()` sets every figure of `lib.measurements` beside two predictions: the old price (one roofline for a
step) and the new one (a sum over kernels). They are worked out by `lib.predict`; because that takes minutes,
they are kept in `lib/data/predictions.csv`, which `python -m lib.measured --write` makes again. `suspects()`
says what each part of the new price does, alone and left out: kept in `suspects.csv`, made by `--suspects`.
`typical_error` is what they say of a model on a GPU. `python -m lib.measured FILE.toml` predicts a file of
measurements that nobody here has seen.
"""

import csv
import io
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from importlib.resources import files
from math import ceil
from pathlib import Path
from statistics import median

from lib import measurements
from lib.hardware import GPU
from lib.measurements import Figure, Measurement, Setup
from lib.models import Model
from lib.predict import NEW, OLD, SEEDS, Parts, early, growth, model_of, predict

FILE = "predictions.csv"
OF_PARTS = "suspects.csv"
PARTS = tuple(Parts.__dataclass_fields__)
FIRST = (  # the nine benchmarks that the book's first prediction was of
    "guide-l40s-", "mooncake-sglang-a10-", "mooncake-vllm-h800", "llm-d-h200-", "mori-mi300x-",
    "distserve-blog-", "splitwise-a100-tp8", "splitwise-h100-tp8", "fabric-lib-",
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """A measured figure beside the old price's prediction and the new one's, or why there is none."""

    measurement: Measurement
    figure: Figure
    old: float | None
    new: float | None
    why: str = ""

    @property
    def setup(self) -> Setup:
        """The figure's point, the first where it is about several."""
        return self.figure.setups[0]

    @property
    def name(self) -> str:
        """The figure's path."""
        return "/".join(self.figure.path)

    @property
    def tests(self) -> bool:
        """Whether it is a test: predicted, and of no constant's making."""
        return self.new is not None and not self.figure.constant

    @property
    def kind(self) -> str:
        """What it is a figure of: "first token", "between tokens" or "whole"."""
        what = self.figure.path[0]
        if what.startswith(("ttft", "prefill")):
            return "first token"
        return "between tokens" if what.startswith(("tpot", "itl", "step", "tail")) else "whole"

    @property
    def experts(self) -> bool:
        """Whether the model has experts."""
        return bool(model_of(self.setup.model).experts)


def off(predicted: float | None, measured: float) -> float:
    """Return by which factor, 1 or more, a prediction is off; infinite where it is 0."""
    if not predicted or predicted < 0:
        return float("inf")
    return max(predicted / measured, measured / predicted)


def factors(rows: Iterable[Row], old: bool = False) -> list[float]:
    """Return the factors of the rows that are a test, the best first."""
    tests = [row for row in rows if row.tests and (row.old is not None or not old)]
    return sorted(off(row.old if old else row.new, row.figure.measured) for row in tests)


def ninth(values: Sequence[float]) -> float:
    """Return what nine in ten of these sorted values do not exceed."""
    return values[ceil(0.9 * len(values)) - 1]


def within(values: Sequence[float], limit: float) -> float:
    """Return which share of the values is at most the limit."""
    return sum(value <= limit for value in values) / len(values)


# ---------------------------------------------------------------------------------------- all predictions


def predictions(
    one: Measurement, parts: Parts = NEW, seeds: Sequence[int] = SEEDS
) -> Iterator[tuple[Figure, float | None, str]]:
    """Yield each figure of a measurement, its prediction, or None and why there is none."""
    wanted: dict[Setup, list[str]] = {}
    for figure in one.figures:
        for setup in figure.setups:
            wanted.setdefault(setup, []).append(_plain(figure))
    worked: dict[Setup, dict[str, float | str]] = {}

    def at(setup: Setup, name: str) -> float:
        if setup not in worked:
            played = setup if parts.late else early(setup, one.chosen_late)
            worked[setup] = predict(played, wanted[setup], parts, one.source.published, seeds)
        found = worked[setup][name]
        if isinstance(found, str):
            raise ValueError(found)
        return found

    for figure in one.figures:
        name = _plain(figure)
        try:
            if name.endswith("growth"):
                yield figure, growth(name, figure.setups), ""
            else:
                ends = max if "_highest_" in figure.path[0] else min
                yield figure, ends([at(setup, name) for setup in figure.setups]), ""
        except ValueError as error:
            yield figure, None, str(error)


def _plain(figure: Figure) -> str:
    """The name of a figure at one point: without what it is over."""
    return figure.path[0].replace("_lowest_", "_").replace("_highest_", "_")


def fingerprint(instead: Mapping[str, bytes] | None = None) -> str:
    """Return what the kept predictions are of: the measurements, the kernels' constants, the models.

    `instead`: of a file in `lib/data`, another content.
    """
    folder, others = files("lib.data"), instead or {}
    names = ("kernels.toml", "models.json")
    texts = [others[name] if name in others else folder.joinpath(name).read_bytes() for name in names]
    inner = folder.joinpath("measurements")
    texts += [inner.joinpath(name).read_bytes() for name in sorted(file.name for file in inner.iterdir())]
    return sha256(b"\0".join(texts)).hexdigest()[:16]


def _kept(name: str) -> list[dict[str, str]]:
    """The lines of a file that `--write` made. ValueError where it was made of other data."""
    first, _, rest = files("lib.data").joinpath(name).read_text("utf8").partition("\n")
    if first != f"# {fingerprint()}":
        raise ValueError(
            f"{name}: it was made of other measurements or constants; use python -m lib.measured --write"
        )
    return list(csv.DictReader(io.StringIO(rest)))


@cache
def compare() -> tuple[Row, ...]:
    """Return every figure with its kept predictions. ValueError where these are of other data."""
    kept = {(line["measurement"], line["figure"]): line for line in _kept(FILE)}
    rows = []
    for one in measurements.measurements().values():
        for figure in one.figures:
            line = kept[one.id, "/".join(figure.path)]
            old, new = (float(line[name]) if line[name] else None for name in ("old", "new"))
            rows.append(Row(one, figure, old, new, line["why"]))
    return tuple(rows)


def write(folder: Path, jobs: int = 2) -> None:
    """Work out every prediction, and keep them. It takes minutes."""
    from multiprocessing import Pool  # which a browser does not have

    with Pool(jobs) as pool:
        every = list(measurements.measurements().values())
        lines = [line for found in pool.imap(_lines, every, chunksize=1) for line in found]
        _save(folder / FILE, ("measurement", "figure", "old", "new", "why"), lines)


# ---------------------------------------------------------------------------------------- parts, one by one


def variants() -> dict[str, Parts]:
    """Return the old price with one part of the new one, and the new price without it: name -> parts."""
    alone = {f"only {part}": replace(OLD, **{part: True}) for part in PARTS}
    return alone | {f"without {part}": replace(NEW, **{part: False}) for part in PARTS}


@cache
def suspects() -> dict[str, tuple[float, ...]]:
    """Return the factors under every variant, and under both whole prices, of the first nine benchmarks.

    Of the same figures each, under one seed, the best first: "old", "new", "only kernels", "without kernels",
    and so on for every part. A figure that a variant cannot play is infinitely far off.
    """
    measured = {(row.measurement.id, row.name): row.figure.measured for row in compare() if is_first(row)}
    found: dict[str, list[float]] = {}
    for line in _kept(OF_PARTS):
        known = measured[line.pop("measurement"), line.pop("figure")]
        for name, value in line.items():
            found.setdefault(name, []).append(off(float(value) if value else None, known))
    return {name: tuple(sorted(values)) for name, values in found.items()}


def write_suspects(folder: Path, jobs: int = 2) -> None:
    """Work out every variant for the first nine benchmarks, and keep them. It takes minutes."""
    from multiprocessing import Pool  # which a browser does not have

    first = dict.fromkeys(row.measurement.id for row in compare() if is_first(row) and row.tests)
    every = [measurements.measurements()[name] for name in first]
    with Pool(jobs) as pool:
        lines = [line for found in pool.imap(_of_parts, every, chunksize=1) for line in found]
        _save(folder / OF_PARTS, ("measurement", "figure", "old", "new", *variants()), lines)


def _of_parts(one: Measurement) -> list[tuple[str, ...]]:
    columns = [list(predictions(one, parts, SEEDS[:1])) for parts in (OLD, NEW, *variants().values())]
    tests = [
        (figure, [column[place][1] for column in columns])
        for place, (figure, value, _) in enumerate(columns[1])
        if value is not None and not figure.constant
    ]
    return [(one.id, "/".join(figure.path), *map(_short, values)) for figure, values in tests]


def _save(path: Path, header: Sequence[str], lines: Iterable[Sequence[str]]) -> None:
    with path.open("w", encoding="utf8", newline="\n") as file:
        file.write(f"# {fingerprint()}\n")
        table = csv.writer(file, lineterminator="\n")
        table.writerows([header, *lines])


def _lines(one: Measurement) -> list[tuple[str, ...]]:
    both = zip(predictions(one, OLD), predictions(one), strict=True)
    return [
        (one.id, "/".join(figure.path), _short(old), _short(new), why)
        for (figure, old, _), (_, new, why) in both
    ]


def _short(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def is_first(row: Row) -> bool:
    """Say whether a figure is of the nine benchmarks that the book began with."""
    return row.measurement.id.startswith(FIRST)


# ---------------------------------------------------------------------------------------- typical error


@dataclass(frozen=True)
class Error:
    """By which factor predictions of a kind are off: median, nine in ten, of how many figures, whose."""

    median: float
    ninth: float
    figures: int
    sources: tuple[str, ...]
    alike: str


ENOUGH = 5  # figures
CALLED = {"first token": "first tokens", "between tokens": "times between tokens"}
PHASES = tuple(CALLED)


@cache
def typical_error(model: Model, gpu: GPU, phase: str = "whole", old: bool = False) -> Error:
    """Return the book's typical error for such a model on such a GPU, over figures that gave no constant.

    `phase`: "first token", "between tokens" or "whole" (all of them). Of models alike (dense, or with
    experts) on the same GPU; where fewer than five figures are, on any GPU; then of that phase or not.
    `old`: of the roofline's price, not of the kernels'.
    """
    kinds = ("first token", "between tokens", "whole")
    if phase not in kinds:
        raise ValueError(f"typical_error: phase={phase!r} will not do; use one of {', '.join(kinds)}")
    rows = [row for row in compare() if row.tests and row.experts == bool(model.experts)]
    there = "models with experts" if model.experts else "dense models"
    phased = [row for row in rows if phase in ("whole", row.kind)]
    tried = (
        (f"{there} on {gpu.name}", [row for row in phased if row.setup.gpu == gpu.name]),
        (there, phased),
        (there, rows),
    )
    alike, some = next((one for one in tried if len(one[1]) >= ENOUGH), tried[-1])
    found = factors(some, old)
    sources = Counter(row.measurement.source.id for row in some)
    return Error(median(found), ninth(found), len(found), tuple(sources), alike)


def typically(model: Model, gpu: GPU, old: bool = False, phases: Sequence[str] = PHASES) -> str:
    """Return the typical error for such a model on such a GPU in a sentence, for each of `phases`."""
    found = {phase: typical_error(model, gpu, phase, old) for phase in phases}
    said = [
        f"{CALLED[phase]} {error.median:.2f} times off in the median of {error.figures} figures of "
        f"{error.alike}, nine in ten within {error.ninth:.2f}"
        for phase, error in found.items()
    ]
    price = "one roofline a step" if old else "kernels"
    return f"Typical error of this book's times by {price}: {'; '.join(said)}."


# ---------------------------------------------------------------------------------------- the command


def report(every: Sequence[Measurement], refused: Sequence[str], parts: Parts = NEW) -> Iterator[str]:
    """Yield the lines of a report: figure by figure, then the median factor and the worst."""
    found: list[tuple[float, str]] = []
    yield from (f"not read: {why}" for why in refused)
    for one in every:
        whys: dict[str, int] = {}
        for figure, value, why in predictions(one, parts):
            if value is None:
                whys[why] = whys.get(why, 0) + 1
                continue
            name = f"{one.id} {'/'.join(figure.path)}"
            factor = off(value, figure.measured)
            found.append((factor, name))
            both = f"measured {figure.printed}, predicted {value:.4g} {figure.unit}"
            yield f"{name}: {both}, factor {factor:.2f}"
        for why, number in whys.items():
            yield f"{one.id}: {number} figure{'s' * (number > 1)} not predicted: {why}"
    if not found:
        yield "no figure could be predicted"
        return
    ordered = sorted(found)
    values = [factor for factor, _ in ordered]
    yield (
        f"{len(values)} figures: median factor {median(values):.2f}, nine in ten within {ninth(values):.2f}, "
        f"worst {values[-1]:.2f} ({ordered[-1][1]})"
    )


USAGE = """usage: python -m lib.measured FILE.toml    predict a file in the form of lib/measurements.py
       python -m lib.measured --write      work out lib/data/predictions.csv again
       python -m lib.measured --suspects   work out lib/data/suspects.csv again"""


def main(arguments: Sequence[str]) -> int:
    """Return the exit status: 0, or 2 where the file cannot be read."""
    if list(arguments) == ["--write"]:
        write(Path(str(files("lib.data"))))
        return 0
    if list(arguments) == ["--suspects"]:
        write_suspects(Path(str(files("lib.data"))))
        return 0
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print(USAGE, file=sys.stderr)
        return 2
    refused: list[str] = []
    try:
        every = measurements.read(arguments[0], refused)
    except (OSError, ValueError, RecursionError) as error:
        said = " ".join(str(error).split())
        named = Path(arguments[0]).name in said
        print(said if named else f"{arguments[0]}: {said}", file=sys.stderr)
        return 2
    for line in report(every, refused):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
