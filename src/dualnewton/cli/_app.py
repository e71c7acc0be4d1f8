"""The application that the commands belong to, and what happens when one of them fails."""

from __future__ import annotations

import importlib
import os
import sys

import typer

COMMANDS = (
    "fit",
    "predict",
    "evaluate",
    "certify",
    "plan",
    "rates",
    "compare",
    "reproduce",
    "convert",
    "datasets",
)
"""In the order of ``--help``; each is a function of the same name in a module of that name."""

INTERRUPTED, WRONG = 130, 2
"""Exit codes: the keyboard asked to stop; the user has to change something."""

USERS_FAULT = (ValueError, OSError, MemoryError, ImportError)
"""Errors whose message is for the user. All others are faults of the library, and keep their traceback."""


def application() -> typer.Typer:
    """Gather the commands. What they need is loaded when one of them runs, so that ``--help`` comes at once."""
    app = typer.Typer(
        name="dualnewton",
        help="Fit regularised linear models, and prove how good each fit is.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for name in COMMANDS:
        module = importlib.import_module(f"dualnewton.cli.{name}")
        app.command(name)(getattr(module, name))
    return app


def main(arguments: list[str] | None = None) -> None:
    """Run a command; an error of the user's is one line and exit code 2, Ctrl-C exit code 130."""
    try:
        application()(arguments, standalone_mode=True)
    except KeyboardInterrupt:
        fail("interrupted", INTERRUPTED)
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except USERS_FAULT as error:
        fail(message(error), WRONG)


def message(error: BaseException) -> str:
    """Return what an error says, in one line."""
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    else:
        text = str(error) or ("not enough memory" if isinstance(error, MemoryError) else type(error).__name__)
    return " ".join(text.split())


def fail(text: str, code: int) -> None:
    """Say why on standard error, and leave."""
    print(f"dualnewton: {text}", file=sys.stderr)
    sys.exit(code)
