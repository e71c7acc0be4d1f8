"""The options that several commands share, with their help texts."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

DATA, TABLE, OBJECTIVE, RUN = "Data", "Tables (CSV, Parquet)", "Objective", "Run"
"""The titles of the groups of options in ``--help``."""


def option(name: str, metavar: str | None, text: str, group: str | None = None) -> Any:
    """Return an option with its help text in a group."""
    return typer.Option(name, metavar=metavar, help=text, rich_help_panel=group)


Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A file (svmlight, CSV, Parquet, npz, npy), a folder of files, or a name that `datasets` lists.",
    ),
]
Model = Annotated[str, typer.Argument(metavar="MODEL", help="A file saved by `fit --out`.")]
Tol = Annotated[float, option("--tol", "NUMBER", "Stop at this certified relative gap (P - D)/|P|.", RUN)]
TimeLimit = Annotated[
    float | None,
    option("--time-limit", "SECONDS", "Stop after this time with the best model so far. No limit by default.", RUN),
]
MaxEpochs = Annotated[int, option("--max-epochs", "NUMBER", "Limit on the passes over the data.", RUN)]
Threads = Annotated[
    int, option("--threads", "NUMBER", "Number of threads; a given method has the same result for any.", RUN)
]
Cores = Annotated[
    int | None,
    option(
        "--threads",
        "NUMBER",
        'Number of threads, by default that of the physical cores this process may use; "auto" may choose by it.',
        RUN,
    ),
]
Seed = Annotated[int, option("--seed", "NUMBER", "Random seed; equal seeds give equal models.", RUN)]
Method = Annotated[
    str,
    option(
        "--method",
        "NAME",
        "sdna, sdca, newton, ihs or interior; auto chooses the method with the smallest predicted cost.",
        RUN,
    ),
]
Dask = Annotated[
    str | None,
    option(
        "--dask",
        "ADDRESS",
        "Fit on a Dask cluster: the address of its scheduler, or local:2 for two worker processes on this machine. Workers read "
        "the files of a folder themselves, under the same paths. By default the fit runs in this process.",
        RUN,
    ),
]
Json = Annotated[bool, option("--json", None, "Print JSON, for other programs.")]

Options = dict[str, tuple[Any, Any, str]]
"""Options by name: the type, the placeholder and the help text of each. Their default values are in ``…_DEFAULTS``."""

# The columns ---------------------------------------------------------------------------------------------------------

ROLES: Options = {
    "target": (str | None, "COLUMN", "The column to predict."),
    "weights": (str | None, "COLUMN", "The column with a weight for each row."),
    "offset": (str | None, "COLUMN", "The column that is added to the margins. None by default."),
    "exposure": (str | None, "COLUMN", "The column of exposures > 0, whose logarithm is the offset. None by default."),
    "memory": (
        str | None,
        "SIZE",
        "Read the rows from disk in pieces, within this memory, such as 2G; features must be numbers. By default files "
        "are read as a whole, and folders in pieces within 4G.",
    ),
}
"""The options that give a column its role, and ``--memory``."""

Roles = Mapping[str, Any]

ROLE_DEFAULTS: Roles = dict.fromkeys(ROLES)

# The objective -------------------------------------------------------------------------------------------------------

Number = float | None

OBJECTIVE_OPTIONS: Options = {
    "loss": (
        str | None,
        "NAME",
        "For classes: logistic, squared_hinge, smooth_hinge, hinge. For numbers: squared, huber, epsilon_insensitive, "
        "squared_epsilon_insensitive, quantile, poisson, gamma, tweedie (mean exp(z)). "
        "By default logistic for at most 20 distinct labels, else squared.",
    ),
    "penalty": (str, "NAME", "l2, l1, elasticnet or nonnegative."),
    "C": (Number, "NUMBER", "The inverse strength of the penalty: lambda = 1/(C n). 1 by default; inf is no penalty."),
    "lam": (Number, "NUMBER", "The value of lambda, instead of C; 0 is no penalty."),
    "l1_ratio": (
        Number,
        "NUMBER",
        "The share of the l1 norm in the penalty, 0 to 1. 0.5 by default for elasticnet, 0 for nonnegative.",
    ),
    "intercept": (bool, None, "Fit a constant term, which is not penalised."),
    "delta": (Number, "NUMBER", "For huber: the absolute error at which the loss becomes linear. 1 by default."),
    "epsilon": (
        Number,
        "NUMBER",
        "For the epsilon_insensitive losses: the largest absolute error without a loss. 0.1 by default.",
    ),
    "q": (Number, "NUMBER", "For quantile: which one is predicted, between 0 and 1. 0.5 (the median) by default."),
    "power": (Number, "NUMBER", "For tweedie: the power of the variance, between 1 and 2. 1.5 by default."),
    "width": (
        Number,
        "NUMBER",
        "For smooth_hinge: the width of the interval of margins on which the kink is smoothed. 1 by default.",
    ),
    "multiclass": (
        str | None,
        "NAME",
        "For several classes: softmax, or ovr (each class against the rest). By default softmax for logistic, else ovr.",
    ),
}
"""The options that describe the objective."""

Objective = Mapping[str, Any]

OBJECTIVE_DEFAULTS: Objective = {**dict.fromkeys(OBJECTIVE_OPTIONS), "penalty": "l2", "intercept": True}

FLAGS = {
    "C": "-C",
    "q": "--quantile",
    "intercept": "--intercept/--no-intercept",
    "l1_ratio": "--l1-ratio",
    "standardise": "--standardise/--no-standardise",
}
"""Names on the command line that are not ``--word``."""

# Tables ----------------------------------------------------------------------------------------------------------------------

COLUMNS: Options = {
    "drop": (str | None, "NAMES", "Columns of a table to leave out, separated by commas."),
    "features": (
        str | None,
        "NAMES",
        "The columns of a table to use; by default all that are numbers, dates or categories.",
    ),
    "categorical": (str | None, "NAMES", "Columns to treat as categories, such as codes that are written as numbers."),
    "numeric": (str | None, "NAMES", "Columns to treat as numbers; other text in them counts as missing."),
    "standardise": (bool, None, "Give numbers and dates of a table mean 0 and standard deviation 1 for the fit."),
}
"""The options that describe the columns of a table."""

FILE: Options = {
    "encoding": (str | None, "NAME", "The encoding of a CSV file. By default UTF-8, or else cp1252."),
    "decimal": (str | None, "MARK", "The decimal mark of a CSV file, . or , . By default found from its numbers."),
}
"""The options that describe the layout of a text file."""

Table = Mapping[str, Any]

FILE_DEFAULTS: Table = dict.fromkeys(FILE)
TABLE_DEFAULTS: Table = {**dict.fromkeys(COLUMNS), "standardise": True, **FILE_DEFAULTS}

GROUPS: dict[str, tuple[Options, str]] = {
    "roles": (ROLES, DATA),
    "objective": (OBJECTIVE_OPTIONS, OBJECTIVE),
    "table": ({**COLUMNS, **FILE}, TABLE),
}
"""The parameters of commands that represent several options, with the title of their group."""


def only(*words: str) -> Objective:
    """Return some of the options of the objective, for a command that does not take all."""
    return {word: OBJECTIVE_DEFAULTS[word] for word in words}


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter in ``GROUPS`` by an option for each key of its default; the command receives a dictionary."""
    taken: list[inspect.Parameter] = []
    found: dict[str, Mapping[str, Any]] = {}
    for each in inspect.signature(command, eval_str=True).parameters.values():
        if each.name not in GROUPS:
            taken.append(each)
            continue
        table, title = GROUPS[each.name]
        found[each.name] = each.default
        for word, default in each.default.items():
            kind, metavar, text = table[word]
            flag = option(FLAGS.get(word, f"--{word}"), metavar, text, title)
            taken.append(inspect.Parameter(word, each.kind, default=default, annotation=Annotated[kind, flag]))

    @functools.wraps(command)
    def run(**given: Any) -> None:
        groups = {name: {word: given.pop(word) for word in words} for name, words in found.items()}
        command(**groups, **given)

    run.__signature__ = inspect.Signature(taken)  # type: ignore[attr-defined]
    return run
