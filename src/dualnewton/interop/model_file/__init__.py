"""Models as files: what was fitted, how good it is proved to be, and all that is needed to use it.

The format is described in docs/model-format.md.
"""

from dualnewton.interop.model_file._saved import KIND, VERSION, SavedModel

__all__ = ["KIND", "VERSION", "SavedModel"]
