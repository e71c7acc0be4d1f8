"""Dual methods: rounds over sets of examples."""
