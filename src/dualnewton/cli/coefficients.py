"""``dualnewton coefficients``: the coefficients of a saved model by name, sorted, in original units."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Annotated, NamedTuple

from dualnewton.cli import _options as options
from dualnewton.errors import DualnewtonError

if TYPE_CHECKING:
    from dualnewton.interop.model_file import SavedModel

BAR = 20
"""Length of the longest bar in characters."""

SHORTEST = 5
"""Length of the longest bar on a narrow terminal."""

Out = Annotated[str | None, options.option("--out", "FILE", "Also write all coefficients to a CSV file.")]
Top = Annotated[int, options.option("--top", "NUMBER", "How many to list for each class; 0 lists all.")]


class Line(NamedTuple):
    """A coefficient: its name, its class if there are several, in original units, and as it was fitted."""

    name: str
    output: str
    coefficient: float
    fitted: float


def coefficients(model: options.Model, top: Top = 30, out: Out = None, json: options.Json = False) -> None:
    """List the coefficients of a MODEL by name, the largest effect first, with a bar.

    The coefficient is in original units: the change of the margin x'w + b for one unit of the column. The effect is the
    coefficient as it was fitted: for one standard deviation of a number that was standardised, for the presence of a category.
    Effects can be compared with each other, and the penalty is a function of them; the list is sorted by them.

    For example:

        dualnewton fit breast_cancer --out cancer.model
        dualnewton coefficients cancer.model --top 10
    """
    from dualnewton.cli import _output
    from dualnewton.interop.model_file import SavedModel

    if top < 0:
        raise DualnewtonError(f"--top must be a number >= 0, got {top}")
    _output.ready(out)
    fitted = SavedModel.load(model)
    lines, intercepts = listed(fitted)
    if out is not None:
        with _output.writing(out):
            write(out, lines, intercepts)
    if json:
        _output.as_json({"intercept": intercepts, "coefficients": [line._asdict() for line in lines]})
        return
    _output.say("model", f"{model}: {fitted.objective}")
    for output, intercept in intercepts.items():
        own = [line for line in lines if line.output == output]
        zeros = sum(line.fitted == 0.0 for line in own)
        _output.say("intercept", f"{intercept:.6g}" + (f" for {output}" if output else ""))
        print()
        show(own[: top or None], max((abs(line.fitted) for line in own), default=0.0))
        if top and len(own) > top:
            print(f"… and {len(own) - top} more (--top 0 lists all)")
        if zeros:
            print(f"{_output.count(zeros, 'coefficient')} of {len(own)} {'is' if zeros == 1 else 'are'} exactly 0")
        print()


def listed(model: SavedModel) -> tuple[list[Line], dict[str, float]]:
    """Return the coefficients, the largest effect of each class first, and the intercept of each class, in original units."""
    import numpy as np

    names = model.feature_names or tuple(f"feature {j}" for j in range(model.d))
    original, intercepts = model.in_original_units()
    K = len(model.coef)
    outputs = [""] if K == 1 else [str(label) for label in (range(K) if model.classes is None else model.classes)]
    if K == 1 and model.classes is not None:
        outputs = [str(model.classes[1])]
    lines = []
    for k, output in enumerate(outputs):
        for j in np.argsort(-np.abs(model.coef[k]), kind="stable").tolist():
            lines.append(Line(names[j], output, float(original[k, j]), float(model.coef[k, j])))
    return lines, dict(zip(outputs, map(float, intercepts), strict=True))


def show(lines: list[Line], largest: float) -> None:
    """Print coefficients with bars; those of negative effects are hollow."""
    from dualnewton.cli import _output

    cells = [(line.name, f"{line.coefficient:+.6g}", f"{line.fitted:+.4g}") for line in lines]
    width = _output.terminal_width()
    used = sum(max((len(row[k]) for row in cells), default=0) + 2 for k in range(3))
    full = BAR if width is None else min(BAR, max(SHORTEST, width - used))
    rows: list[tuple[str, ...]] = []
    for line, cell in zip(lines, cells, strict=True):
        length = 0 if largest == 0.0 else max(round(full * abs(line.fitted) / largest), int(line.fitted != 0.0))
        rows.append((*cell, ("█" if line.fitted > 0 else "░") * length))
    legend = "█ raises, ░ lowers"
    _output.table(("column", "coefficient", "effect", legend if len(legend) <= full else "█ + ░ -"), rows)


def write(out: str, lines: list[Line], intercepts: dict[str, float]) -> None:
    """Write all coefficients to a CSV file."""
    from dualnewton.files.replacing import replacing

    with replacing(out, "w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["feature", "class", "coefficient", "effect"])
        rows.writerows(["intercept", output, value, ""] for output, value in intercepts.items())
        rows.writerows(lines)
