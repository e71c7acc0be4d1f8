"""Data sets by name or from files: the public interface of :mod:`dualnewton.io`."""

from dualnewton.io import *  # noqa: F403
from dualnewton.io import __all__ as __all__
