"""The one loop that drives a method, and what it keeps and returns."""
