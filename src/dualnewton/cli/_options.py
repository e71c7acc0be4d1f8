"""The options that several commands share, with their help texts."""

from __future__ import annotations

from typing import Annotated

import typer

FROM, OBJECTIVE, RUN = "Data", "Objective", "Run"
"""The titles of the groups of options in ``--help``."""

Data = Annotated[
    str,
    typer.Argument(metavar="DATA", help="A file (svmlight, CSV, Parquet, npz, npy), or a name that `datasets` lists."),
]
Target = Annotated[
    str | None, typer.Option("--target", metavar="COLUMN", help="The column to predict.", rich_help_panel=FROM)
]
Weights = Annotated[
    str | None,
    typer.Option("--weights", metavar="COLUMN", help="The column with a weight for each row.", rich_help_panel=FROM),
]

Loss = Annotated[
    str | None,
    typer.Option(
        "--loss",
        metavar="NAME",
        help="For classes: logistic, squared_hinge, smooth_hinge, hinge. For numbers: squared, huber, epsilon_insensitive, "
        "squared_epsilon_insensitive. By default logistic for at most 20 distinct labels, else squared.",
        rich_help_panel=OBJECTIVE,
    ),
]
Penalty = Annotated[
    str,
    typer.Option("--penalty", metavar="NAME", help="l2, l1, elasticnet or nonnegative.", rich_help_panel=OBJECTIVE),
]
C = Annotated[
    float | None,
    typer.Option(
        "-C",
        metavar="NUMBER",
        help="The inverse strength of the penalty: lambda = 1/(C n). 1 by default.",
        rich_help_panel=OBJECTIVE,
    ),
]
Lam = Annotated[
    float | None,
    typer.Option("--lam", metavar="NUMBER", help="The value of lambda, instead of C.", rich_help_panel=OBJECTIVE),
]
L1Ratio = Annotated[
    float | None,
    typer.Option(
        "--l1-ratio",
        metavar="NUMBER",
        help="The share of the l1 norm in the penalty, 0 to 1. 0.5 by default for elasticnet, 0 for nonnegative.",
        rich_help_panel=OBJECTIVE,
    ),
]
Intercept = Annotated[
    bool,
    typer.Option(
        "--intercept/--no-intercept", help="Fit a constant term, which is not penalised.", rich_help_panel=OBJECTIVE
    ),
]
Delta = Annotated[
    float | None,
    typer.Option(
        "--delta",
        metavar="NUMBER",
        help="For huber: the absolute error at which the loss becomes linear. 1 by default.",
        rich_help_panel=OBJECTIVE,
    ),
]
Epsilon = Annotated[
    float | None,
    typer.Option(
        "--epsilon",
        metavar="NUMBER",
        help="For the epsilon_insensitive losses: the largest absolute error without a loss. 0.1 by default.",
        rich_help_panel=OBJECTIVE,
    ),
]
Width = Annotated[
    float | None,
    typer.Option(
        "--width",
        metavar="NUMBER",
        help="For smooth_hinge: the width of the interval of margins on which the kink is smoothed. 1 by default.",
        rich_help_panel=OBJECTIVE,
    ),
]
Multiclass = Annotated[
    str | None,
    typer.Option(
        "--multiclass",
        metavar="NAME",
        help="For several classes: softmax, or ovr (each class against the rest). By default softmax for logistic, else ovr.",
        rich_help_panel=OBJECTIVE,
    ),
]

Tol = Annotated[
    float,
    typer.Option(
        "--tol", metavar="NUMBER", help="Stop at this certified relative gap (P - D)/|P|.", rich_help_panel=RUN
    ),
]
TimeLimit = Annotated[
    float | None,
    typer.Option(
        "--time-limit",
        metavar="SECONDS",
        help="Stop after this time with the best model so far. No limit by default.",
        rich_help_panel=RUN,
    ),
]
MaxEpochs = Annotated[
    int,
    typer.Option("--max-epochs", metavar="NUMBER", help="Limit on the passes over the data.", rich_help_panel=RUN),
]
Threads = Annotated[
    int,
    typer.Option(
        "--threads", metavar="NUMBER", help="Number of threads; it does not change the result.", rich_help_panel=RUN
    ),
]
Seed = Annotated[
    int,
    typer.Option("--seed", metavar="NUMBER", help="Random seed; equal seeds give equal models.", rich_help_panel=RUN),
]
Method = Annotated[
    str,
    typer.Option(
        "--method",
        metavar="NAME",
        help="sdna, sdca, newton or ihs; auto chooses the method with the smallest predicted cost.",
        rich_help_panel=RUN,
    ),
]

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for other programs.")]
Model = Annotated[str, typer.Argument(metavar="MODEL", help="A file saved by `fit --out`.")]
