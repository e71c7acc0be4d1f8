"""One thread produces items ahead of their use, in order, within its bound, and ends with the block that uses them."""

import threading
import time

import pytest

from dualnewton.matrix.read_ahead import NAME, ReadAhead


def readers():
    return [thread for thread in threading.enumerate() if thread.name == NAME]


def counted(made, count, fault=None):
    try:
        for k in range(count):
            if k == fault:
                raise OSError("the disk does not answer")
            made.append(k)
            yield k
    finally:
        made.append("closed")


@pytest.mark.parametrize("most", [2, 3])
def test_items_come_in_order_and_never_more_than_the_bound_exist(most):
    made, used = [], []
    with ReadAhead(counted(made, 20), most) as items:
        for item in items:
            time.sleep(0.001)
            used.append(item)
            assert len(made) - (len(used) - 1) <= most  # with the one in use
    assert used == list(range(20))
    assert made[-1] == "closed"
    assert not readers()


def test_an_error_of_the_reader_is_raised_in_place_of_the_item():
    made, used = [], []
    with pytest.raises(OSError, match="does not answer"), ReadAhead(counted(made, 9, fault=5), 2) as items:
        used.extend(items)
    assert used == [0, 1, 2, 3, 4]
    assert made[-1] == "closed"
    assert not readers()


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_error_of_the_user_ends_the_thread(error):
    made = []

    def use():
        with ReadAhead(counted(made, 1000), 2) as items:
            for item in items:
                if item == 3:
                    raise error

    with pytest.raises(error):
        use()
    assert made[-1] == "closed"
    assert len(made) < 10
    assert not readers()
