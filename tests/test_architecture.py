"""Rules of the structure: imports point one way, importing is light, files stay small."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "dualnewton"
FILES = sorted(SOURCE.rglob("*.py"))

# A module may import from layers below its own, and from its own layer.
LAYERS = [
    {
        "errors",
        "row_arrays",
        "validation",
        "files",
        "_cached",
        "_identities",
        "_warning",
        "losses",
        "regularizers",
        "samplings",
    },
    {"kernels", "matrix"},
    {"objective", "theory"},
    {"methods", "solvers"},
    {"planning"},
    {"run"},
    {"interop", "io", "data", "preprocessing"},
    {"estimators"},
    {"__init__", "dask"},
    {"accel", "lab"},
    {"cli"},
    {"__main__"},
]

# An outer scheme steps an inner run of run/, reads its plan, and asks planning/ whether linear algebra is worth its cost.
OUTER = {
    "solvers/outer/aggregation.py",
    "solvers/outer/proximal_point.py",
    "solvers/outer/scale_search.py",
    "solvers/outer/unpenalised.py",
}


def layer_of(name):
    (level,) = [level for level, packages in enumerate(LAYERS) if name in packages]
    return level


def package_of(path):
    first = path.relative_to(SOURCE).parts[0]
    return first.removesuffix(".py")


def text_of(path):
    return path.read_text(encoding="utf-8")


@cache
def nodes_of(source):
    """All nodes of the syntax tree of a module."""
    return list(ast.walk(ast.parse(source)))


def imported_packages(source):
    """The packages of the library that a module imports, wherever in it the import stands."""
    for node in nodes_of(source):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "dualnewton":
            parts = node.module.split(".")[1:]
            yield from [parts[0]] if parts else [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[1] for alias in node.names if alias.name.startswith("dualnewton."))


def upward_imports(package, source):
    return [other for other in imported_packages(source) if layer_of(other) > layer_of(package)]


def test_imports_point_one_way():
    assert len(FILES) > 100
    upward = {
        path.relative_to(SOURCE).as_posix(): set(upward_imports(package_of(path), text_of(path))) for path in FILES
    }
    allowed = {name: {"planning", "run"} if name in OUTER else set() for name in upward}
    assert {name: packages for name, packages in upward.items() if not packages <= allowed[name]} == {}


def test_an_import_that_points_up_would_be_seen():
    assert upward_imports("losses", "from dualnewton.run.loop import solve") == ["run"]
    assert upward_imports("objective", "def f():\n    import dualnewton.solvers.dual.reference") == ["solvers"]
    assert upward_imports("theory", "from dualnewton import losses, planning") == ["planning"]
    assert upward_imports("solvers", "from dualnewton.planning.costs import Costs") == ["planning"]
    assert upward_imports("planning", "from dualnewton.run.result import Result") == ["run"]


# Only these compute with a matrix of examples as it is stored; the theory and the paper's methods with those of users. Files are
# read into, written from and made as matrices in io, before there are data; the lab compares libraries that take matrices.
MAY_TOUCH_X = {"matrix", "kernels", "theory", "methods", "io", "lab"}


def is_stored_matrix(node):
    """Whether an expression is some ``.X``, or a variable ``X``, or rows, the transpose or a copy of it.

    A call of a method of a variable ``X`` is none: that may be an object of ``Data``, whose methods are the way to its rows.
    """
    called = False
    while True:
        if isinstance(node, ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node, called = node.func.value, True
        elif isinstance(node, ast.Attribute) and node.attr == "T":
            node = node.value
        elif isinstance(node, ast.Name):
            return node.id == "X" and not called
        else:
            return isinstance(node, ast.Attribute) and node.attr == "X"


def computations_with_x(source):
    """The lines of a module that import ``matrix.whole``, or have some ``.X`` in a sum, a product or a call of ``linear``."""
    for node in nodes_of(source):
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            touches = any(name.startswith("dualnewton.matrix.whole") for name in names)
        elif isinstance(node, ast.BinOp):
            touches = is_stored_matrix(node.left) or is_stored_matrix(node.right)
        elif isinstance(node, ast.Call):
            module = getattr(getattr(node.func, "value", None), "id", None)
            touches = module in ("linear", "grams", "np") and any(map(is_stored_matrix, node.args))
        else:
            touches = False
        if touches:
            yield node.lineno


def test_only_the_matrix_and_the_kernels_compute_with_x():
    others = [path for path in FILES if package_of(path) not in MAY_TOUCH_X]
    assert len(others) > 100
    lines = {str(path): list(computations_with_x(text_of(path))) for path in others}
    assert {path: found for path, found in lines.items() if found} == {}


@pytest.mark.parametrize(
    "line",
    [
        "from dualnewton.matrix import linear, whole",
        "from dualnewton.matrix.whole import times",
        "z = problem.X @ w",
        "z = data.X[rows].T @ a",
        "K = linear.gram(self.data.X[inside])",
        "s = np.square(problem.X)",
        "z = X @ w",
        "for rows, X in blocks:\n    sums += X.T @ mass[rows]",
        "def predict(X):\n    return X[:, 1:] @ coef",
    ],
)
def test_a_computation_with_x_would_be_seen(line):
    assert list(computations_with_x(line)) == [len(line.splitlines())]


def test_rows_that_data_return_and_matrices_that_are_passed_on_are_no_computation_with_x():
    fine = "K = linear.gram(data.rows(some))\nn = 2 * data.X.shape[0]\nproblem = Problem(data.X, y)\nscorer(model, data.X[rows])"
    fine += "\nz = X.times(w) - offset\nscores = safe_sparse_dot(X, coef.T) + intercept\nrows = data.rows(some)\nu = rows @ w"
    assert list(computations_with_x(fine)) == []


def test_files_stay_small():
    lengths = {str(path): len(text_of(path).splitlines()) for path in [*FILES, *Path(__file__).parent.rglob("*.py")]}
    assert len(lengths) > 200
    assert {path: lines for path, lines in lengths.items() if lines > 500} == {}


def lengths_of_bodies(source):
    """The name of each function, its line, and the lines of its body: without decorators, signature and docstring."""
    for node in nodes_of(source):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            said = isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant)
            first = node.body[0].end_lineno + 1 if said else node.body[0].lineno
            yield node.name, node.lineno, node.end_lineno - first + 1


LONGEST = 60
"""Lines of the body of a function. Public functions may have longer docstrings, which their reference page shows."""


def test_functions_stay_short():
    bodies = [(str(path), *found) for path in FILES for found in lengths_of_bodies(text_of(path))]
    assert len(bodies) > 2000
    assert [found for found in bodies if found[-1] > LONGEST] == []


def test_a_long_function_would_be_seen():
    body = "    a = 1\n" * (LONGEST + 1)
    documented = f'def f(\n    x,\n):\n    "Words."\n{body}'
    assert list(lengths_of_bodies(documented)) == [("f", 1, LONGEST + 1)]
    assert list(lengths_of_bodies("def f():\n    'Words.'")) == [("f", 1, 0)]


def test_importing_loads_nothing_heavy():
    heavy = ("numba", "matplotlib", "dask", "torch", "sklearn", "pandas", "pyarrow", "scipy.linalg", "scipy.optimize")
    code = f"import sys, dualnewton; print([name for name in {heavy} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


@pytest.mark.slow
def test_the_lab_is_loaded_by_no_import_of_the_library():
    code = """if True:
        import sys, dualnewton, dualnewton.cli, dualnewton.io, dualnewton.interop.model_file
        from dualnewton import estimators
        from dualnewton.cli._app import application
        [getattr(dualnewton, name) for name in dualnewton.__all__]
        application()
        print([name for name in sys.modules if name.startswith("dualnewton.lab")])
    """
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_the_public_names_are_there():
    import dualnewton as dn

    for name in dn.__all__:
        assert getattr(dn, name) is not None
    assert {"Problem", "solve", "plan", "certify", "losses", "regularizers", "samplings", "theory", "methods"} <= set(
        dn.__all__
    )
    for name in (
        "expected_submatrix",
        "expected_inverse",
        "sigma1",
        "sigma2",
        "sigma3",
        "sigma1_prox",
        "sigma3_prox",
        "eso",
    ):
        assert callable(getattr(dn.theory, name))
    for name in ("eso_from_data", "is_eso", "theta", "importance", "rates", "epochs_to"):
        assert callable(getattr(dn.theory, name))
    for name in ("method1", "method2", "nsync", "prox_method1", "pcdm"):
        assert callable(getattr(dn.methods, name))


def test_data_are_one_thing():
    """A reader who meets ``Data`` meets the protocol of ``matrix``, wherever it is."""
    named = [
        path
        for path in FILES
        for node in nodes_of(text_of(path))
        if isinstance(node, ast.ClassDef) and node.name == "Data"
    ]
    assert [path.relative_to(SOURCE).as_posix() for path in named] == ["matrix/protocol.py"]
