"""The application that contains the commands, and the handling of their errors."""

from __future__ import annotations

import importlib
import io
import os
import shlex
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from dualnewton.errors import DataWarning, DualnewtonError, MissingPackageError

COMMANDS = (
    "fit",
    "predict",
    "evaluate",
    "certify",
    "coefficients",
    "plan",
    "rates",
    "compare",
    "reproduce",
    "convert",
    "datasets",
    "warm-up",
)
"""The commands in the order of ``--help``; each is a function in a module of the same name (with _ for -)."""

INTERRUPTED, WRONG = 130, 2
"""Exit codes of an interrupted command (128 plus the number of SIGINT, as in shells) and of an error in the user's input."""

USERS_FAULT = (DualnewtonError, MissingPackageError, OSError, MemoryError)
"""Errors that are shown as one line: about the input, optional packages, files, and data too large for the memory. All others,
including a ``ValueError`` from NumPy, are bugs of the library and are shown with their traceback."""


def application() -> typer.Typer:
    """Return the application with all commands; each imports its dependencies when it runs, so that ``--help`` is fast."""
    app = typer.Typer(
        name="dualnewton",
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(options_of_all)
    for name in COMMANDS:
        function = name.replace("-", "_")
        module = importlib.import_module(f"dualnewton.cli.{function}")
        app.command(name)(getattr(module, function))
    return app


def options_of_all(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.", is_eager=True)] = False,
) -> None:
    """Fit regularised linear models, and certify each fit by its duality gap."""
    if version:
        import dualnewton

        print(f"dualnewton {dualnewton.__version__}")
        raise typer.Exit


def main(arguments: list[str] | None = None) -> None:
    """Run a command; an error in the user's input is shown as one line with exit code 2, Ctrl-C gives exit code 130."""
    arguments = sys.argv[1:] if arguments is None else arguments
    code = None
    if sys.stdout is None:  # the process was started without one
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    elif isinstance(sys.stdout, io.TextIOWrapper):
        # A name, a label or a Greek letter that the encoding of the output lacks is escaped, as on standard error.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        # ctx.obj passes the command line to the command, which writes it into reports and models.
        typed = shlex.join(["dualnewton", *arguments])
        with warnings.catch_warnings():
            warnings.showwarning = show_warning
            code = application()(arguments or ["--help"], prog_name="dualnewton", standalone_mode=False, obj=typed)
        sys.stdout.flush()  # here, so that an error of writing is handled below
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:  # output pipe closed
        drop_output()
        sys.exit(1)
    except USERS_FAULT as error:
        fail(message(error), WRONG)
    except Exception as error:
        # A usage error of typer, recognised by its method because the module of its class depends on the version of typer.
        if not hasattr(error, "format_message"):
            raise
        fail(usage(error), WRONG)
    if code == INTERRUPTED:  # typer also converts Ctrl-C to this code
        fail("interrupted", INTERRUPTED)
    sys.exit(code if isinstance(code, int) else 0)


def show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any, **__: Any
) -> None:
    """Print a warning about the user's data as one line; any other warning also has the place in the code that gave it."""
    place = "" if issubclass(category, DataWarning) else f"{filename}:{lineno}: {category.__name__}: "
    print(f"dualnewton: {place}{' '.join(str(message).split())}", file=sys.stderr)


def usage(error: Any) -> str:
    """Return the message of a usage error in one line, with a reference to the help of the command."""
    command = error.ctx.command_path if getattr(error, "ctx", None) else "dualnewton"
    text = " ".join(error.format_message().split())
    return f"{text.rstrip('.')} (see {command} --help)"


def message(error: BaseException) -> str:
    """Return the message of an error in one line."""
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    else:
        text = str(error) or ("not enough memory" if isinstance(error, MemoryError) else type(error).__name__)
    return " ".join(text.split())


def fail(text: str, code: int) -> None:
    """Print a message on standard error and exit."""
    print(f"dualnewton: {text}", file=sys.stderr)
    try:
        sys.stdout.flush()
    except OSError:
        drop_output()
    sys.exit(code)


def drop_output() -> None:
    """Redirect standard output to the null device, because Python would otherwise try to flush it again at exit and fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
