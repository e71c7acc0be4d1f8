"""Functions of a loss in C for passes over rows on a GPU, translated from its own methods.

Each function of a loss is one branch-free expression of NumPy's functions, so that its syntax tree translates to C term by term
(:func:`translated`). A loss whose methods hold anything else has no translation and is evaluated by its NumPy expressions.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from functools import cache
from typing import Any, NamedTuple

from dualnewton.losses.base import BALANCING, Loss

FUNCTIONS = {
    "abs": "fabs", "absolute": "fabs", "exp": "exp", "log": "log", "log1p": "log1p", "expm1": "expm1", "sqrt": "sqrt",
    "maximum": "max_", "minimum": "min_", "tanh": "tanh", "logaddexp": "logaddexp_", "sign": "sign_", "square": "square_",
}  # fmt: skip
"""NumPy's functions by their names in C; those with an underscore are defined in ``PRELUDE``."""

OPERATORS: dict[type, str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Gt: ">", ast.GtE: ">=", ast.Lt: "<", ast.LtE: "<=",
    ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip

PRELUDE = r"""
#ifndef INFINITY
#define INFINITY __longlong_as_double(0x7ff0000000000000LL)
#endif
// As NumPy's maximum and minimum, these return NaN if one of the numbers is.
__device__ inline double max_(double a, double b) { return a > b || a != a ? a : b; }
__device__ inline double min_(double a, double b) { return a < b || a != a ? a : b; }
__device__ inline double square_(double x) { return x * x; }
__device__ inline double sign_(double x) { return (x > 0.0) - (x < 0.0); }
__device__ inline double logaddexp_(double a, double b) { return fmax(a, b) + log1p(exp(-fabs(a - b))); }
"""


class Untranslatable(Exception):  # noqa: N818 (it reports no error)
    """A method contains an expression that cannot be translated to C."""


class Translation(NamedTuple):
    """C functions of (z or u, y, parameters), and the names of the parameters."""

    source: str
    parameters: tuple[str, ...]


class _Translator:
    """Translates the methods of one loss; ``self.name`` becomes a parameter."""

    def __init__(self, kind: type) -> None:
        self.kind = kind
        self.parameters: list[str] = []

    def body(self, name: str, results: int = 1) -> tuple[list[str], list[str]]:
        """Return the statements of a method of (z or u, y), and the expressions that it returns."""
        method = getattr(self.kind, name)
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(method))).body[0]
        except (OSError, TypeError, SyntaxError, IndentationError) as error:
            raise Untranslatable(str(error)) from None
        if not isinstance(tree, ast.FunctionDef) or tree.decorator_list:
            raise Untranslatable(name)
        own, *arguments = [argument.arg for argument in tree.args.args]
        self.own, self.names = own, {name: f"{name}_" for name in arguments}
        lines: list[str] = []
        for statement in tree.body:
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                continue  # the docstring
            if isinstance(statement, ast.Return) and statement.value is not None:
                found = statement.value.elts if isinstance(statement.value, ast.Tuple) else [statement.value]
                if len(found) != results:
                    raise Untranslatable(name)
                return lines, [self.expression(each) for each in found]
            if not (isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)):
                raise Untranslatable(ast.dump(statement))
            value, target = self.expression(statement.value), statement.targets[0].id
            lines.append(f"double {target}_{len(lines)} = {value};")
            self.names[target] = f"{target}_{len(lines) - 1}"
        raise Untranslatable(name)

    def expression(self, node: ast.expr) -> str:
        """Return an expression of doubles; a comparison is 1.0 or 0.0."""
        each = self.expression
        match node:
            case ast.Constant(value=float() | int() as number):
                return repr(float(number))
            case ast.Name(id=name) if name in self.names:
                return self.names[name]
            case ast.Attribute(value=ast.Name(id="np"), attr="inf"):
                return "INFINITY"
            case ast.Attribute(value=ast.Name(id=name), attr=field) if name == self.own:
                if field not in self.parameters:
                    self.parameters.append(field)
                return f"p[{self.parameters.index(field)}]"
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return f"(-{each(operand)})"
            case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=2 | 2.0)):
                return f"square_({each(left)})"
            case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
                return f"({each(left)} {OPERATORS[type(op)]} {each(right)})"
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in OPERATORS:
                return f"({each(left)} {OPERATORS[type(op)]} {each(right)} ? 1.0 : 0.0)"
            case ast.Call(func=ast.Attribute(value=ast.Name(id="np"), attr="where"), args=[condition, yes, no]):
                return f"({each(condition)} != 0.0 ? {each(yes)} : {each(no)})"
            case ast.Call(func=ast.Attribute(value=ast.Name(id="np"), attr=name), args=args) if name in FUNCTIONS:
                return f"{FUNCTIONS[name]}({', '.join(map(each, args))})"
            case _:
                raise Untranslatable(ast.dump(node))

    def function(self, name: str, method: str, of: str = "z") -> str:
        """Return a C function of (z, y, p), or of (u, y, p)."""
        lines, (result,) = self.body(method)
        return f"__device__ double {name}(double {of}_, double y_, const double* p) {{ {' '.join(lines)} return {result}; }}\n"

    def direction(self) -> str:
        """Return the balancing direction (``Loss.balancing_direction``)."""
        head = "__device__ double direction(double z_, double y_, const double* p)"
        if self.kind.domain is Loss.domain:  # type: ignore[attr-defined]
            return f"{head} {{ return bend(z_, y_, p); }}\n"
        lines, (low, high) = self.body("domain", 2)
        return (
            f"{head} {{ {' '.join(lines)} double slope_ = slope(z_, y_, p), low_ = {low}, high_ = {high}; "
            f"double room_ = min_(slope_ - low_, high_ - slope_) / {BALANCING!r}; "
            "return max_(min_(bend(z_, y_, p), room_), 0.0); }\n"
        )


@cache
def translated(kind: type) -> Translation | None:
    """Return ``value``, ``slope``, ``bend`` and ``direction`` of a class of losses in C; None if one cannot be translated."""
    if kind.balancing_direction is not Loss.balancing_direction:  # type: ignore[attr-defined]
        return None
    translator = _Translator(kind)
    try:
        functions = [
            translator.function("value", "value"),
            translator.function("slope", "derivative"),
            translator.function("bend", "second_derivative"),
            translator.direction(),
        ]
    except Untranslatable:
        return None
    return Translation(PRELUDE + "".join(functions), tuple(translator.parameters))


@cache
def translated_conjugate(kind: type) -> Translation | None:
    """Return the function φ*, infinite outside of its domain, of a class of losses in C; None if it cannot be translated."""
    if kind.conjugate is not Loss.conjugate or kind.conjugates is not Loss.conjugates:  # type: ignore[attr-defined]
        return None
    translator = _Translator(kind)
    head = "__device__ double conjugate(double u_, double y_, const double* p)"
    try:
        inside = translator.function("conjugate_inside", "conjugate_inside", "u")
        lines, ends = (
            ([], ["-INFINITY", "INFINITY"])
            if kind.domain is Loss.domain  # type: ignore[attr-defined]
            else translator.body("domain", 2)
        )
    except Untranslatable:
        return None
    whole = (
        f"{head} {{ {' '.join(lines)} double inside_ = min_(max_(u_, {ends[0]}), {ends[1]}); "
        "return inside_ == u_ ? conjugate_inside(inside_, y_, p) : INFINITY; }\n"
    )
    return Translation(PRELUDE + inside + whole, tuple(translator.parameters))


def parameters_of(loss: Any, translation: Translation) -> list[float]:
    """Return the numbers that the translated functions take, at least one."""
    return [float(getattr(loss, name)) for name in translation.parameters] or [0.0]
