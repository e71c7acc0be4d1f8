"""A campaign that tries to break the library: ``python -m campaign --help``. Nothing in the library imports it.

Each part is one file with a function ``case(seed, folder)``, which draws everything from the seed, tries one thing, and returns
how often each allowed outcome occurred; anything else is raised. ``runner`` runs the cases of a part in a child process and keeps
a log of finished seeds, ``report`` turns the logs into the table of docs/reliability.md.
"""
