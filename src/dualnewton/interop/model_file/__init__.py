"""Models as files: the fitted model, its certificate, and everything needed to predict with it.

The format is described in docs/model-format.md.
"""

from dualnewton.interop.model_file._saved import KIND, VERSION, SavedModel

__all__ = ["KIND", "VERSION", "SavedModel"]
