"""Covering designs: few cells of a product of factors, in which every two levels of any two factors meet."""

import itertools

import numpy as np


def pairs_of(cell):
    """The pairs of levels that meet in a cell, each level as (factor, number)."""
    return {(i, cell[i], j, cell[j]) for i, j in itertools.combinations(range(len(cell)), 2)}


def covering(sizes, is_costly=None):
    """Level numbers, cell by cell, such that any two levels of two factors share a cell; each cell settles all pairs it can.

    ``is_costly`` says of a part of a cell, a dictionary of levels by factor, whether it is used only if there is no other that
    has the same pair: cells may share what is slow to prepare, such as compiled code.
    """
    open_pairs = set().union(*(pairs_of(cell) for cell in itertools.product(*map(range, sizes))))
    while open_pairs:
        i, a, j, b = min(open_pairs)
        cell = {i: a, j: b}
        for k in range(len(sizes)):
            if k not in cell:
                gain = [
                    sum((*min((k, x), o), *max((k, x), o)) in open_pairs for o in cell.items())
                    - len(sizes) * bool(is_costly and is_costly(cell | {k: x}))
                    for x in range(sizes[k])
                ]
                cell[k] = int(np.argmax(gain))
        chosen = tuple(cell[k] for k in range(len(sizes)))
        open_pairs -= pairs_of(chosen)
        yield chosen


def all_pairs(*factors):
    """The same with the levels themselves, as parameters of a test."""
    factors = [list(levels) for levels in factors]
    return [
        tuple(levels[x] for levels, x in zip(factors, cell, strict=True)) for cell in covering(list(map(len, factors)))
    ]
