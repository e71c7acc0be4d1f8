"""The command line: ``dualnewton COMMAND …``, one file a command."""

from dualnewton.cli._app import main

__all__ = ["main"]
