"""Sweeps: the same question asked of many cells of a grid, here or on other machines."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future, as_completed
from dataclasses import dataclass
from itertools import product
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


@dataclass(frozen=True)
class Sweep(Generic[Result]):
    """What came of a sweep: `results` by cell, in the order asked for, and `lost`: why a cell has none."""

    results: dict[Any, Result]
    lost: dict[Any, str]


def grid(**axes: Iterable[Any]) -> list[tuple[Any, ...]]:
    """All combinations of the axes' values, as tuples in the order of the axes; the last varies first."""
    return list(product(*axes.values()))


def sweep(
    cells: Sequence[Any],
    ask: Callable[..., Result],
    executor: Executor | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Sweep[Result]:
    """Ask `ask(*cell)` for every cell, or `ask(cell)` where a cell is no tuple.

    `executor`: anything that has the interface of `concurrent.futures.Executor`, such as a process pool or a
    Dask client's `get_executor()`; None: one after the other, here. The results are the same whichever it
    is. A cell whose call fails, or whose worker is lost, stands in `lost`; the others are kept.
    `progress(done, of)` is called after every cell. ValueError for no cells, or a cell that stands twice.
    """
    if not cells:
        raise ValueError("sweep: cells is empty; use at least one cell")
    if len(set(cells)) < len(cells):
        twice = next(cell for i, cell in enumerate(cells) if cell in cells[:i])
        raise ValueError(f"sweep: cell {twice!r} stands twice; use each once")
    results: dict[Any, Result] = {}
    lost: dict[Any, str] = {}

    def note(cell: Any, get: Callable[[], Result]) -> None:
        try:
            results[cell] = get()
        except Exception as error:
            lost[cell] = f"{type(error).__name__}: {error}"
        if progress:
            progress(len(results) + len(lost), len(cells))

    def call(cell: Any) -> Result:
        return ask(*cell) if isinstance(cell, tuple) else ask(cell)

    if executor is None:
        for cell in cells:
            note(cell, lambda cell=cell: call(cell))  # type: ignore[misc]
    else:
        futures: dict[Future[Result], Any] = {}
        for cell in cells:
            arguments = cell if isinstance(cell, tuple) else (cell,)
            try:
                futures[executor.submit(ask, *arguments)] = cell
            except Exception as error:  # a pool that has lost a worker takes nothing more
                lost[cell] = f"{type(error).__name__}: {error}"
        for future in as_completed(futures):
            note(futures[future], future.result)
    return Sweep(
        {cell: results[cell] for cell in cells if cell in results},
        {cell: lost[cell] for cell in cells if cell in lost},
    )
