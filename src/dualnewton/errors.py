"""The exceptions that the library raises about its input."""


class DualnewtonError(ValueError):
    """An argument or a file is invalid; the message names it, the value found and what is allowed.

    Every exception about the user's input derives from this class. Any other ``ValueError`` raised by the library is a bug in it.
    """


class MissingPackageError(ImportError):
    """An optional package is needed and not installed; the message says how to install it."""
