"""How sparse matrices are divided into groups and tiles for a GPU; ``tests/gpu/checks.py`` checks the products themselves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dualnewton.matrix.cuda_tiles import GROUP, WARPS, WIDTH, Shape, shared_by

SHARED = 227 << 10
"""Bytes of shared memory that a block may use on a GPU of compute capability 9."""


@given(n=st.integers(1, 1 << 30), d=st.integers(1, 1 << 30), processors=st.integers(1, 300))
def test_every_row_is_in_a_group_and_every_column_in_a_tile_of_a_range(n, d, processors):
    shape = Shape.of(n, d, processors)
    assert shape.group * (shape.groups - 1) < n <= shape.group * shape.groups
    assert WIDTH * (shape.tiles - 1) < d <= WIDTH * shape.tiles
    assert shape.range * (shape.ranges - 1) < shape.tiles <= shape.range * shape.ranges
    assert shape.group <= GROUP


@given(n=st.integers(1, 1 << 30), d=st.integers(1, 1 << 30))
def test_blocks_fill_the_processors_or_are_as_many_as_there_is_work(n, d):
    shape = Shape.of(n, d, 132)
    blocks = -(-shape.groups // WARPS) * shape.ranges
    assert blocks <= 132 or shape.ranges == 1
    if n >= 132 * WARPS * GROUP:  # whole waves of blocks, but for the rounding of the rows of a group
        assert -blocks % 132 / blocks < 0.02 + WARPS / shape.group / 2 + 1 / blocks


def test_a_block_has_room_for_two_tiles_and_its_sums():
    assert shared_by(GROUP) + 1024 <= SHARED
    assert GROUP < 512, "a row of a group, and one for the zeros of windows, take nine bits"
    assert 2 * WIDTH < 1 << 16, "a place in the buffer of two tiles takes 16 bits"
    assert WIDTH % 2 == 0, "copies of 16 bytes"


@pytest.mark.parametrize(
    ("n", "d", "per_row", "tiled"),
    [
        (10_000_000, 1_000_000, 50, True),
        (2_000_000, 200_000, 50, True),
        (1_000_000, 10_000_000, 50, False),  # few entries of a group in a tile
        (100_000, 50_000, 50, False),  # few entries in all
        (50_000_000, 100_000, 50, False),  # more entries than whole numbers of 31 bits count
    ],
)
def test_tiles_are_for_many_entries_in_each_tile(n, d, per_row, tiled):
    assert Shape.of(n, d, 132).fits(n * per_row) == tiled
