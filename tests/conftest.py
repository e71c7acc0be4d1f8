from pathlib import Path

import pytest
from hypothesis import settings

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

TOGETHER = ("kernels", "solvers/dual")
"""Folders whose tests run in one process of pytest-xdist, since they compile the same kernels; elsewhere a module is the unit."""

# The same examples on every run and every machine; time limits belong to benchmarks.
settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=50)
settings.load_profile("fixed")


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items):
    here = Path(__file__).parent
    quick = tuple(here / name for name in QUICK)
    if missing := [place.name for place in quick if not place.exists()]:
        raise pytest.UsageError(f"QUICK names {', '.join(missing)}, which is not there")
    modules = {item.path for item in items}
    slow = {path for path in modules if not any(path.is_relative_to(place) for place in quick)}
    units = {path: unit_of(path.relative_to(here)) for path in modules}
    for item in items:
        if item.path in slow:
            item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(units[item.path]))


def unit_of(path):
    """The group of a module's tests under ``--dist loadgroup``: what they compile, cache and share by fixtures is made once."""
    return next((folder for folder in TOGETHER if path.is_relative_to(folder)), path.as_posix())


@pytest.fixture(scope="session")
def cluster():
    """A Dask cluster of two processes on this machine; its client is the one that collections are computed with."""
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as local,
        distributed.Client(local) as client,
    ):
        yield client
