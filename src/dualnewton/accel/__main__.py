"""``python -m dualnewton.accel script.py …`` runs a program whose scikit-learn models this library fits."""

from __future__ import annotations

import argparse
import runpy
import sys

from dualnewton import accel


def main(arguments: list[str] | None = None) -> None:
    """Install, run the program as ``python`` would, and list on request the fits by scikit-learn's own ``fit``."""
    parser = argparse.ArgumentParser(
        prog="python -m dualnewton.accel",
        description="Run a program; scikit-learn's linear models in it are fitted and certified by dualnewton.",
    )
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="list at the end the fits by scikit-learn, with the reasons"
    )
    parser.add_argument("-m", dest="module", action="store_true", help="the program is a module, as in python -m")
    parser.add_argument("program", help="a script, or a module with -m")
    parser.add_argument("rest", nargs=argparse.REMAINDER, metavar="argument", help="arguments of the program")
    given = parser.parse_args(arguments)
    accel.install()
    sys.argv = [given.program, *given.rest]
    try:
        if given.module:
            runpy.run_module(given.program, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(given.program, run_name="__main__")
    finally:
        if given.verbose:
            for (name, reason), count in sorted(accel.fallbacks().items()):
                times = "fit" if count == 1 else "fits"
                print(f"dualnewton.accel: {count} {times} of {name} by scikit-learn: {reason}", file=sys.stderr)


if __name__ == "__main__":
    main()
