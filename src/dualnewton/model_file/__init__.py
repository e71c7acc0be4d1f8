"""Models as files: what was fitted, how good it is proved to be, and all that is needed to use it.

The format is described in docs/model-format.md.
"""

from dualnewton.model_file._objective import LOSSES, PENALTIES, Objective
from dualnewton.model_file._saved import KIND, VERSION, SavedModel

__all__ = ["KIND", "LOSSES", "PENALTIES", "VERSION", "Objective", "SavedModel"]
