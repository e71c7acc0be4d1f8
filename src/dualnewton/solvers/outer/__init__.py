"""Schemes that solve a problem by a sequence of others."""
