"""The exceptions and warnings about the user's input."""


class DualnewtonError(ValueError):
    """An argument or a file is invalid; the message names it, the value found and what is allowed.

    Every exception about the user's input derives from this class. Any other ``ValueError`` raised by the library is a bug in it.

    Examples
    --------
    >>> import numpy as np
    >>> import dualnewton as dn
    >>> try:
    ...     dn.Problem(np.eye(2), np.ones(2), dn.losses.Squared(), lam=-1.0)
    ... except dn.DualnewtonError as error:
    ...     print(error)
    lam must be a finite number > 0, got -1.0
    """


class MissingPackageError(ImportError):
    """An optional package is needed and not installed; the message says how to install it."""


class DataWarning(UserWarning):
    """A file can be read and used, but its content is not the expected one.

    Examples
    --------
    Make it an error where results must be comparable with the documented ones:

    >>> import warnings
    >>> import dualnewton as dn
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", dn.data.DataWarning)
    ...     data = dn.data.load("diabetes")
    """
