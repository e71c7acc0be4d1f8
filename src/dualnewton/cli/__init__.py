"""The command line ``dualnewton COMMAND …``, with one module for each command."""

from dualnewton.cli._app import main

__all__ = ["main"]
