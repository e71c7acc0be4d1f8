"""``python -m dualnewton`` is the command line."""

from dualnewton.cli import main

main()
