"""Outer schemes, which solve a problem through a sequence of other problems."""
