"""What a part of the campaign is, and the list of all parts."""

from __future__ import annotations

import importlib
import importlib.util
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


class Defect(Exception):  # noqa: N818 (it is what the campaign looks for)
    """Something happened that docs/reliability.md rules out; the message says what."""


SKIPPED = "skipped"
"""First word of an outcome that is no case: what was to be tried needs a package that is absent."""


def skipped(what: str, needs: Iterable[str]) -> Counter[str] | None:
    """Return the outcome of what needs an absent package; None if all packages are present."""
    absent = [name for name in needs if importlib.util.find_spec(name) is None]
    return Counter([f"{SKIPPED} {what}: no {', '.join(absent)}"]) if absent else None


@dataclass(frozen=True)
class Part:
    """One part of the campaign.

    Attributes
    ----------
    name : str
        The module of the part in this package.
    wanted : int
        Seeds of a whole campaign.
    seconds : float
        Seconds after which a case counts as hanging.
    counts : str
        The unit of a case, for the table.
    memory : int, optional
        Bytes of address space that a process of the part may use: a case that would take all memory fails by itself. CUDA
        reserves more than any machine has.
    """

    name: str
    wanted: int
    seconds: float
    counts: str
    memory: int | None = 8 << 30

    def case(self, seed: int, folder: Path) -> Counter[str]:
        """Try the case of a seed, in an empty folder; return how often each outcome occurred."""
        return importlib.import_module(f"campaign.{self.name}").case(seed, folder)


PARTS = {
    part.name: part
    for part in (
        Part("fits", 100_000, 120.0, "fits of random problems"),
        Part("gpu", 10_000, 300.0, "fits of random problems on a GPU", memory=None),
        Part("dask", 1_000, 300.0, "fits of random problems on Dask"),
        Part("estimators", 20_000, 180.0, "fits of estimators and cross-validations"),
        Part("files", 25_000, 120.0, "damaged files, through every reader"),
        Part("rounding", 20_000, 120.0, "certificates against 50-digit arithmetic"),
        Part("mutants", 10_000, 120.0, "fits by a solver with a fault"),
        Part("kills", 200, 300.0, "processes killed"),
        Part("numbers", 2_000, 120.0, "fits of unusual numbers and arrays"),
        Part("resources", 500, 600.0, "shortages of a resource"),
        Part("absent", 20, 300.0, "processes without an optional package"),
    )
}
