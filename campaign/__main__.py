"""``python -m campaign``: run parts, try a seed again, write the table."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from campaign import report, runner
from campaign.parts import PARTS

LOGS = runner.ROOT / "build" / "campaign"


def main() -> int:
    """Read the command, and do it; the exit status is 1 if there is a defect."""
    parser = argparse.ArgumentParser(prog="python -m campaign", description="Try to break dualnewton.")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="try the seeds that the log does not hold as passed")
    run.add_argument("parts", nargs="*", choices=[*PARTS, []], help="all by default")
    run.add_argument("--seeds", type=int, help="how many seeds of each part; by default those of a whole campaign")
    run.add_argument("--first", type=int, default=0, help="the first seed")
    run.add_argument("--seconds", type=float, default=float("inf"), help="the most time for each part")
    run.add_argument("--workers", type=int, default=1, help="processes at a time")
    run.add_argument("--logs", type=Path, default=LOGS, help="the folder of the logs")
    again = commands.add_parser("again", help="try one seed in this process, and show what happens")
    again.add_argument("part", choices=PARTS)
    again.add_argument("seed", type=int)
    table = commands.add_parser("report", help="write the table of docs/reliability.md from the logs")
    table.add_argument("--logs", type=Path, default=LOGS)
    serve = commands.add_parser("serve", help="used by run: the child process")
    serve.add_argument("part", choices=PARTS)
    given = parser.parse_args()
    if given.command == "serve":
        runner.serve(PARTS[given.part])
        return 0
    if given.command == "again":
        entry = runner.tried(PARTS[given.part], given.seed)
        print(entry.pop("where", ""), json.dumps(entry), sep="\n")
        return int("defect" in entry)
    if given.command == "report":
        report.write(given.logs)
        return 0
    defects = 0
    for name in given.parts or PARTS:
        count = given.seeds or PARTS[name].wanted
        until = time.monotonic() + given.seconds
        seeds = range(given.first, given.first + count)
        print(f"{name}: seeds {seeds.start} to {seeds.stop - 1}", flush=True)
        defects += len(runner.run(name, seeds, given.logs / f"{name}.jsonl", until, given.workers))
    return int(defects > 0)


if __name__ == "__main__":
    sys.exit(main())
