"""An array type that behaves as CuPy's does, on the CPU: NumPy's functions dispatch to it, and nothing converts it silently.

As on a GPU, an expression may mix these arrays with numbers, but not with NumPy arrays; reductions return arrays of no dimension;
``np.asarray`` raises TypeError, and ``get()`` copies an array to the host.
"""

import numpy as np

from dualnewton import row_arrays
from dualnewton.matrix.device import DeviceData, Namespace

CREATES = {np.asarray, np.array, np.ascontiguousarray, np.zeros, np.ones, np.empty, np.arange, np.full}
"""Functions that dispatch by ``like=`` and may take NumPy arrays."""

REFUSED = {"device", "initial", "where"}
"""Arguments that no function of CuPy takes. NumPy's ``ones`` and ``full`` hand on ``device`` even if it is not given."""


NUMBERS = {np.count_nonzero, np.array_equal}
"""Functions that return a number of Python's in NumPy and an array of no dimension in CuPy."""


def unwrapped(value, *, mixed=False):
    """Return what a value wraps; refuse NumPy arrays unless ``mixed``, as CuPy does."""
    if isinstance(value, FakeArray):
        return value.array
    if isinstance(value, np.ndarray) and not mixed:
        raise TypeError(f"Unsupported type {type(value)}")
    if isinstance(value, list | tuple):
        return type(value)(unwrapped(each, mixed=mixed) for each in value)
    return value


def wrapped(value):
    """Return NumPy arrays and numbers as arrays of the device."""
    if isinstance(value, np.ndarray | np.generic):
        return FakeArray(np.asarray(value))
    if isinstance(value, list | tuple):
        return type(value)(map(wrapped, value))
    return value


class FakeArray(np.lib.mixins.NDArrayOperatorsMixin):
    """A NumPy array that can only be reached by NumPy's dispatch and by :meth:`get`."""

    def __init__(self, array):
        self.array = array

    def get(self):
        return self.array.copy()

    def __array__(self, *_, **__):
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`.")

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **options):
        if out is not None:
            options["out"] = tuple(unwrapped(each) for each in out)
        found = getattr(ufunc, method)(*map(unwrapped, inputs), **options)
        return out[0] if out is not None else wrapped(found)

    def __array_function__(self, function, types, args, kwargs):
        if refused := REFUSED & set(kwargs):
            raise TypeError(f"{function.__name__}() got an unexpected keyword argument {min(refused)!r}")
        mixed = function in CREATES
        args = [unwrapped(each, mixed=mixed) for each in args]
        kwargs = {name: unwrapped(each, mixed=mixed) for name, each in kwargs.items()}
        found = function(*args, **kwargs)
        if function in NUMBERS:
            return FakeArray(np.asarray(found))
        return FakeArray(found.copy()) if function in (np.asarray, np.array) and args[0] is found else wrapped(found)

    # What CuPy's arrays have themselves ------------------------------------------------------------------------------

    shape = property(lambda self: self.array.shape)
    size = property(lambda self: self.array.size)
    ndim = property(lambda self: self.array.ndim)
    dtype = property(lambda self: self.array.dtype)
    nbytes = property(lambda self: self.array.nbytes)
    T = property(lambda self: FakeArray(self.array.T))

    def __len__(self):
        return len(self.array)

    def __bool__(self):
        return bool(self.array)

    def __float__(self):
        return float(self.array)

    def __int__(self):
        return int(self.array)

    def __getitem__(self, key):
        return wrapped(self.array[unwrapped(key)])

    def __setitem__(self, key, value):
        self.array[unwrapped(key)] = unwrapped(value)

    def __iter__(self):
        return map(wrapped, self.array)

    def __getattr__(self, name):
        if name.startswith("_") or name in {"flags", "ctypes", "data", "tolist", "item"}:
            raise AttributeError(name)
        method = getattr(self.array, name)

        def call(*args, **kwargs):
            if refused := REFUSED & set(kwargs):
                raise TypeError(f"{name}() got an unexpected keyword argument {min(refused)!r}")
            return wrapped(method(*map(unwrapped, args), **{key: unwrapped(each) for key, each in kwargs.items()}))

        return call


class FakeModule:
    """NumPy's functions on arrays of the device, as ``cupy`` has them."""

    ndarray = FakeArray
    float32, float64, intp, newaxis = np.float32, np.float64, np.intp, None

    def __getattr__(self, name):
        function = getattr(np, name)
        mixed = function in CREATES

        def call(*args, **kwargs):
            given = [unwrapped(each, mixed=mixed) for each in args]
            return wrapped(function(*given, **{key: unwrapped(each) for key, each in kwargs.items()}))

        return call


class FakeAlgebra:
    """Inverses of transposed Cholesky factors, as those of a GPU."""

    def cholesky(self, H, diagonal):
        try:
            return FakeArray(np.linalg.inv(np.linalg.cholesky(H.array + np.diag(diagonal))).T), False
        except np.linalg.LinAlgError:
            return None, True

    def solve(self, factor, g):
        return factor.array @ (factor.array.T @ g)


class RowFunctions:
    """What the functions of rows compute that are compiled for a GPU: their sums, and the array that they write, if any."""

    def __init__(self, loss, z, y, c, o, way, at):
        self.loss, self.z, self.y, self.c, self.o, self.way, self.at = loss, z, y, c, o, way, at
        self.shifted = z if o is None else z + o

    def weighted(self, values):
        return values if self.c is None else self.c * values

    def slopes(self, z):
        return self.weighted(self.loss.derivative(z, self.y))

    def losses_of(self):
        value = self.weighted(self.loss.value(self.shifted, self.y)).sum()
        return [value], self.at * self.loss.derivative(self.shifted, self.y)

    def curvature_of(self):
        return [], self.weighted(self.loss.second_derivative(self.shifted, self.y))

    def slope_of(self):
        return [self.slopes(self.shifted + self.at * self.way) @ self.way], None

    def intercept_slopes_of(self):
        slopes, bends = self.slopes(self.z + self.at), self.loss.second_derivative(self.z + self.at, self.y)
        return [slopes.sum(), self.weighted(bends).sum(), np.abs(slopes).sum()], None

    def shifted_slopes_of(self):
        return [self.slopes(self.z + b).sum() for b in self.way], None

    def conjugates_of(self):
        return [self.loss.conjugates(self.z, self.y, self.c)], None

    def dual_terms_of(self):
        a = self.weighted(self.z)
        return [0.0 if self.o is None else a @ self.o, *self.conjugates_of()[0], *self.dual_sizes_of()[0]], None

    def dual_sizes_of(self):
        a = self.weighted(self.z)
        return [a @ a, a @ self.z, a.sum(), np.abs(a).sum()], None

    def signed_sums_of(self):
        return [self.weighted(np.maximum(each, 0.0)).sum() for each in (self.z, -self.z)], None

    def active_of(self):
        return [np.count_nonzero(self.z)], None

    def label_weights_of(self):
        return [self.weighted((self.z == label) * 1.0).sum() for label in self.way], None


ROW_FUNCTIONS = {name for name in vars(RowFunctions) if name.endswith("_of")}


def penalised(gradient, x, ridge, scale):
    g = gradient.array + ridge.array * x.array
    return FakeArray(g), tuple(map(float, ((ridge.array * x.array) @ x.array, g @ g, (scale.array * g) @ g)))


def pair(rows, now, before):
    s, y, m = ((getattr(now, name) - getattr(before, name)).array for name in ("x", "gradient", "image"))
    both = np.stack([*(() if rows is None else rows.array), s, m])
    return FakeArray(both), FakeArray(y), np.stack([both @ y, both @ now.gradient.array]), np.array([s @ s, y @ y])


def combination(scale, z, factors, rows, g):
    found = scale * z.array + factors @ rows.array
    return FakeArray(found), float(found @ g.array)


OF_VECTORS = {
    "inner_products_of": lambda *pairs: tuple(float(u.array @ v.array) for u, v in pairs),
    "pair_of": pair,
    "combination_of": combination,
    "penalised_of": penalised,
}
"""Functions of vectors over features on the device."""


def row_function(name, loss):
    """Return a function of rows on the device, as those of a GPU are; None for losses of several columns."""
    if name in OF_VECTORS:
        return OF_VECTORS[name]
    if loss is not None and (loss.columns > 1 or loss.label_columns > 1):
        return None

    def function(z, rows=(), *, slopes=None, factors=None, kept=None, sign=1.0):
        given = [getattr(each, "array", each) for each in (z, *(rows or (None,) * 3), kept)]
        sums, written = getattr(RowFunctions(loss, *given, sign), name)()
        for out in (slopes, factors):
            if out is not None:
                out.array[...] = written
        return tuple(map(float, sums))

    return function


row_arrays.declare(FakeArray, FakeArray.get, FakeAlgebra())
xp = FakeModule()
NAMESPACE = Namespace(xp)


def on_device(X):
    """Return data whose rows are on the device."""
    return DeviceData(FakeArray(np.ascontiguousarray(X)), NAMESPACE)
