"""``dualnewton reproduce``: reproduction of the paper's experiments."""

from __future__ import annotations

from typing import Annotated

import typer

from dualnewton.cli import _options as options

Part = Annotated[
    str, typer.Argument(metavar="[example|figure1|figure2|figure3|all]", help="The experiment; all by default.")
]
Out = Annotated[str, typer.Option("--out", metavar="DIR", help="The folder for the report; created if missing.")]
Quick = Annotated[bool, typer.Option("--quick", help="Small data and short runs, for a preview.")]
Loss = Annotated[str, typer.Option("--loss", metavar="NAME", help="squared or logistic; the paper does not name it.")]


def reproduce(
    ctx: typer.Context,
    part: Part = "all",
    *,
    out: Out,
    quick: Quick = False,
    loss: Loss = "squared",
    seed: options.Seed = 0,
) -> None:
    """Run the experiments of the SDNA paper, and test each of its claims on the measurements.

    example: three methods on a quadratic, whose rates differ by a factor of ten thousand (Example 2.3). figure1: the duality gap
    against epochs for tau = 1, 32, 256. figure2: the time of an epoch against tau. figure3: the gap against runtime for tau = 1,
    4, 16, 32, 64. The data are mushrooms (see `datasets`) and a synthetic set, with lambda = 1/n. All parts take a minute or
    two. The folder receives report.html (interactive charts, tables, claims with verdicts, the machine), and a PNG and a CSV
    file for each part. --quick gives a preview; `reproduce all --out paper` runs everything.

    For example:

        dualnewton reproduce example --quick --out paper
    """
    from dualnewton.cli import _output
    from dualnewton.lab import report
    from dualnewton.lab.reproduce import chosen_parts
    from dualnewton.lab.reproduce import reproduce as run

    report.require()
    chosen_parts(part)
    folder = report.folder(out)
    found = run(part, quick=quick, seed=seed, loss=loss, command=ctx.obj or "")
    with _output.writing(out):
        paths = report.write(found, folder, "report")
    for note in found.notes:
        _output.say("note", note)
    for claim in found.claims:
        _output.say("claim", f"{claim.statement} ({claim.where})")
        _output.say("", f"{claim.verdict.value}: {claim.measured}" + (f" ({claim.reason})" if claim.reason else ""))
    _output.say("report", paths[0])
