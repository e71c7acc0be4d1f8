"""The application that the commands belong to, and what happens when one of them fails."""

from __future__ import annotations

import importlib
import os
import shlex
import sys
from typing import Annotated, Any

import typer

from dualnewton.errors import DualnewtonError, MissingPackageError

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

USERS_FAULT = (DualnewtonError, MissingPackageError, OSError, MemoryError)
"""Errors whose message is for the user: about the input, optional packages, files, and data too large for the memory. All
others, a ``ValueError`` of NumPy among them, are faults of the library and keep their traceback."""


def application() -> typer.Typer:
    """Gather the commands. What they need is loaded when one of them runs, so that ``--help`` comes at once."""
    app = typer.Typer(
        name="dualnewton",
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(options_of_all)
    for name in COMMANDS:
        module = importlib.import_module(f"dualnewton.cli.{name}")
        app.command(name)(getattr(module, name))
    return app


def options_of_all(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.", is_eager=True)] = False,
) -> None:
    """Fit regularised linear models, and prove how good each fit is."""
    if version:
        import dualnewton

        print(f"dualnewton {dualnewton.__version__}")
        raise typer.Exit


def main(arguments: list[str] | None = None) -> None:
    """Run a command; an error of the user's is one line and exit code 2, Ctrl-C exit code 130."""
    arguments = sys.argv[1:] if arguments is None else arguments
    code = None
    try:
        # A command finds what was typed in ctx.obj.
        typed = shlex.join(["dualnewton", *arguments])
        code = application()(arguments or ["--help"], prog_name="dualnewton", standalone_mode=False, obj=typed)
        sys.stdout.flush()  # while an error can still be told
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:  # whoever read our output has seen enough
        drop_output()
        sys.exit(1)
    except USERS_FAULT as error:
        fail(message(error), WRONG)
    except Exception as error:
        # A word that the command does not know. Where typer has the class of its errors depends on its version.
        if not hasattr(error, "format_message"):
            raise
        fail(usage(error), WRONG)
    if code == INTERRUPTED:  # which is also what typer makes of Ctrl-C
        fail("interrupted", INTERRUPTED)
    sys.exit(code if isinstance(code, int) else 0)


def usage(error: Any) -> str:
    """Return what is wrong with the words of a command, and where to read about them, in one line."""
    command = error.ctx.command_path if getattr(error, "ctx", None) else "dualnewton"
    text = " ".join(error.format_message().split())
    return f"{text.rstrip('.')} (see {command} --help)"


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
    try:
        sys.stdout.flush()
    except OSError:
        drop_output()
    sys.exit(code)


def drop_output() -> None:
    """Forget what could not be written, which Python would otherwise try again at its end, and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
