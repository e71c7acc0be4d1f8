"""The loop that drives all methods, its results and its checkpoints."""
