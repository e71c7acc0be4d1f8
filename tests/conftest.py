import gc
import signal
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis.strategies import none

HERE = Path(__file__).parent

QUICK = (
    "cli/test_errors.py",
    "cli/test_help.py",
    "files",
    "io/test_arrays.py",
    "io/test_catalog.py",
    "io/test_formats.py",
    "io/test_tables.py",
    "lab/test_numbers.py",
    "lab/test_progress.py",
    "lab/test_report.py",
    "matrix/test_linear.py",
    "matrix/test_chunked_fits.py",
    "methods",
    "objective/test_problem.py",
    "objective/test_multinomial.py",
    "planning/test_numbers.py",
    "planning/test_planner.py",
    "run/test_snapshot.py",
    "solvers/dual/test_block.py",
    "solvers/primal/test_curvature.py",
    "solvers/primal/test_line_search.py",
    "solvers/prox/test_subproblem.py",
    "test_architecture.py",
    "interop/test_certify_refusals.py",
    "test_check.py",
    "test_contracts.py",
    "samplings",
    "test_errors.py",
    "losses",
    "interop/test_model_file.py",
    "regularizers",
    "test_signatures.py",
    "test_validation.py",
    "theory",
)
"""Modules and folders that ``make quick`` runs: they compile next to nothing, and together take about a minute of CPU time. All
other tests are marked ``slow``, as are single tests here that take more than a second."""

TOGETHER = {
    "rounds": (
        "kernels",
        "solvers/dual",
        "run/test_checkpoint.py",
        "run/test_checkpoint_kills.py",
        "run/test_threads.py",
    ),
    "dask": ("matrix/dask", "cli/test_on_dask.py", "test_dask.py"),
}
"""Modules and folders whose tests run in one process of pytest-xdist: they compile the same kernels, or share a cluster.
Elsewhere a module is the unit, so that what its tests compile, cache and share by fixtures is made once."""

SECONDS_PER_TEST = 0.03
"""Processor time of most tests, at most."""

SECONDS = {
    "rounds": 300.0,
    "dask": 70.0,
    "test_reports_in_a_browser.py": 30.0,
    "matrix/test_data.py": 30.0,
    "run/test_loop.py": 25.0,
    "io/test_convert.py": 20.0,
    "solvers/prox/test_newton.py": 20.0,
    "solvers/prox/test_working_set.py": 15.0,
    "estimators/test_certified_choice.py": 15.0,
    "test_examples.py": 15.0,
    "cli/test_interrupt.py": 15.0,
    "test_benchmark_of_defaults.py": 10.0,
    "solvers/primal/test_interior_point.py": 10.0,
}
"""Processor time of units that take longer than their number of tests says. Long ones run first, so that all processes end at
about the same time."""

# The same examples on every run and every machine; time limits belong to benchmarks.
settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=50)
settings.load_profile("fixed")


def pytest_configure():
    # A shell that runs the tests in its background has children ignore Ctrl-C, which tests send to their own children.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if missing := [name for name in QUICK if not (HERE / name).exists()]:
        raise pytest.UsageError(f"QUICK names {', '.join(missing)}, which is not there")


@cache
def is_slow(path):
    """Whether all tests of a module are left out by ``make quick``."""
    return not any(path.is_relative_to(HERE / name) for name in QUICK)


def pytest_ignore_collect(collection_path, config):
    """Leave slow modules unread under ``-m "not slow"``: to import them takes longer than to run many of the others."""
    left_out = config.option.markexpr == "not slow" and collection_path.suffix == ".py" and is_slow(collection_path)
    return left_out or None


def pytest_collection_modifyitems(items):
    for item in items:
        if is_slow(item.path):
            item.add_marker(pytest.mark.slow)


def leave_out_of_garbage_collection():
    """Leave out what is there now, modules and tests above all: a collection would visit millions of objects each time."""
    gc.collect()
    gc.freeze()


@given(none())
def first_example(_):
    """Have Hypothesis make its random number generator.

    Hypothesis asks the garbage collector who refers to it, and warns if the owner is left out of collections (Python 3.14).
    """


def pytest_collection_finish():
    first_example()
    leave_out_of_garbage_collection()


@cache
def unit_of(path):
    """The name of the tests that run in the same process as those of a module, given by its path in this folder."""
    path = Path(path)
    return next((name for name, places in TOGETHER.items() if any(map(path.is_relative_to, places))), path.as_posix())


def cost_of(unit, tests):
    """Processor time that the tests of a unit are expected to take, in seconds."""
    return SECONDS.get(unit, SECONDS_PER_TEST * len(tests))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Distribute units instead of single tests under ``--dist loadgroup``, the longest first.

    pytest-xdist 3.8 writes the group of a test into its identifier, which pytest 9.2 ignores: single tests are distributed then.
    """
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    here = HERE.relative_to(config.rootpath).as_posix() + "/"

    class ByUnit(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return unit_of(nodeid.partition("::")[0].removeprefix(here))

        def _assign_work_unit(self, node):
            longest = max(self.workqueue, key=lambda unit: cost_of(unit, self.workqueue[unit]))
            self.workqueue.move_to_end(longest, last=False)
            super()._assign_work_unit(node)

        def mark_test_complete(self, node, item_index, duration=0):
            super().mark_test_complete(node, item_index, duration)
            # xdist counts the open tests of all units at every event: a unit that is done is forgotten.
            units = self.assigned_work[node]
            for unit in [unit for unit, tests in units.items() if all(tests.values())]:
                del units[unit]

    return ByUnit(config, log)


CLUSTER = ExitStack()
"""What closes the cluster, once it is open."""


@cache
def opened_cluster():
    distributed = pytest.importorskip("distributed")
    import dask

    from dualnewton.matrix.dask.settings import LOCAL_CLUSTER

    CLUSTER.enter_context(dask.config.set(LOCAL_CLUSTER))
    local = distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0")
    return CLUSTER.enter_context(distributed.Client(CLUSTER.enter_context(local)))


@pytest.fixture(scope="module")
def cluster():
    """A Dask cluster of two processes on this machine, shared by consecutive modules; its client computes collections."""
    return opened_cluster()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item, nextitem):
    """Close the cluster after its modules: threads of its client allocate memory and open files, which other tests count."""
    if nextitem is None or (nextitem.path != item.path and "cluster" not in nextitem.fixturenames):
        CLUSTER.close()
        opened_cluster.cache_clear()
    if nextitem is not None and nextitem.path != item.path:
        leave_out_of_garbage_collection()  # what a module has loaded or compiled stays for good
