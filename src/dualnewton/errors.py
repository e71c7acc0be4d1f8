"""The errors that the library raises about what it was given, as against faults of its own."""


class DualnewtonError(ValueError):
    """An argument or a file is not what it must be; the message names it, what was seen and what is allowed.

    Every error about the user's input derives from it. A plain ``ValueError`` that leaves the library is a fault of the library.
    """


class MissingPackageError(ImportError):
    """An optional package is needed and not installed; the message says how to install it."""
