"""Threads: how many there are, and where they may be used."""

import os
import subprocess
import sys

import pytest

from dualnewton.matrix.workers import physical_cores, threads, workers


def test_threads_end_with_their_context_and_are_not_used_inside_each_other():
    with threads(3):
        assert workers().helpers == 2
        counts = workers().each(range(5), lambda _: workers().helpers)
        with threads(1):
            assert workers().helpers == 0
    assert set(counts) <= {0, 2}
    assert workers().helpers == 0


def test_results_are_in_order_and_an_error_reaches_the_caller():
    def inverse(x):
        return 1.0 / x

    for count in (1, 2, 8):
        with threads(count):
            assert workers().each([1.0, 2.0, 4.0], inverse) == [1.0, 0.5, 0.25]
            with pytest.raises(ZeroDivisionError):
                workers().each([1.0, 0.0, 4.0], inverse)


def test_there_is_a_core():
    assert 1 <= physical_cores() <= os.cpu_count()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no CPU affinity on this system")
def test_physical_cores_respect_the_affinity_of_the_process():
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))});"
        "from dualnewton.matrix.workers import physical_cores; print(physical_cores())"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "1"
