"""Every method has the same bits for any number of threads."""

from itertools import cycle

import pytest

from checkpoint_cases import CASES, bits
from dualnewton.matrix import compiled, factors, few_rows, memory, over_rows, selections, vectors
from dualnewton.objective import groups, row_sums
from dualnewton.planning import costs
from dualnewton.solvers.primal import lbfgs, newton


@pytest.fixture(autouse=True)
def _many_parts(monkeypatch):
    """Parts and blocks so small that there are many of each."""
    monkeypatch.setattr(memory, "COMPILED_FROM", 1)
    monkeypatch.setattr(memory, "PART_ENTRIES", 30)
    monkeypatch.setattr(memory, "DENSE_PART_ENTRIES", 30)
    monkeypatch.setattr(compiled, "LARGE_GRAM", 1)
    monkeypatch.setattr(memory, "LEAST_PAIRS", 1)
    monkeypatch.setattr(compiled, "BLOCK_BYTES", 1)
    monkeypatch.setattr(over_rows, "PART_ROWS", 7)
    monkeypatch.setattr(selections, "MANY_CHANCES", 1)
    monkeypatch.setattr(row_sums, "MANY", 1)
    monkeypatch.setattr(newton, "LONG", 1)
    monkeypatch.setattr(groups, "LONG", 1)
    for name, size in (("LARGE", 1), ("TILE", 4), ("SOLVED", 1)):
        monkeypatch.setattr(factors, name, size)
    monkeypatch.setattr(lbfgs, "SHORT", 1)
    for name, size in (("LONG", 1), ("PART", 4), ("SMALL_PART", 4), ("SHARE", 1)):
        monkeypatch.setattr(vectors, name, size)
    for name, size in (("LONG", 1), ("ROWS", 2), ("FEATURES", 4)):
        monkeypatch.setattr(few_rows, name, size)
    monkeypatch.setattr(selections, "PIECE", 8)
    monkeypatch.setattr(costs, "parts_of", lambda _: 1)  # "auto" chooses the method of one thread


EACH_WITH_FEW = list(zip(CASES, cycle([2, 3, 8]), strict=False))


@pytest.mark.parametrize(("case", "few"), EACH_WITH_FEW, ids=lambda of: getattr(of, "name", str(of)))
def test_threads_do_not_change_a_bit_of_any_method(case, few):
    alone = bits(case.solve(n_threads=1))
    for threads in (few, 16):
        assert bits(case.solve(n_threads=threads)) == alone, threads
