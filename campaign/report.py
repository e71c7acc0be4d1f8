"""The table of docs/reliability.md, from the logs."""

from __future__ import annotations

import platform
import time
from collections import Counter
from importlib.metadata import version
from pathlib import Path

from campaign.parts import PARTS, SKIPPED
from campaign.runner import ROOT, finished

PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- figures: python -m campaign report -->", "<!-- end of figures -->"
VERSIONS = ("numpy", "scipy", "scikit-learn", "numba", "pyarrow")


def rows(logs: Path) -> list[str]:
    """Return a line of the table for each part that has a log."""
    found = []
    for name, part in PARTS.items():
        entries = finished(logs / f"{name}.jsonl")
        if not entries:
            continue
        counts: Counter[str] = Counter()
        for entry in entries.values():
            counts.update(
                {what: count for what, count in entry.get("counts", {}).items() if not what.startswith(SKIPPED)}
            )
        outcomes = ", ".join(f"{what} {count:,}" for what, count in counts.most_common(8))
        defects = sum("defect" in entry for entry in entries.values())
        seeds = f"{min(entries)}–{max(entries)}"
        found.append(f"| {name}: {part.counts} | {seeds} | {counts.total():,} | {outcomes} | {defects} |")
    return found


def write(logs: Path) -> None:
    """Replace the table of the page."""
    before, rest = PAGE.read_text().split(BEGIN)
    after = rest.split(END)[1]
    versions = ", ".join(f"{name} {version(name)}" for name in VERSIONS)
    table = [
        f"{time.strftime('%Y-%m-%d')}, {platform.machine()}, Python {platform.python_version()}, {versions}.",
        "",
        "| part | seeds | cases | outcomes (the most frequent) | defects that remain |",
        "|---|---|---:|---|---:|",
        *rows(logs),
    ]
    PAGE.write_text(before + "\n".join([BEGIN, *table, END]) + after)
