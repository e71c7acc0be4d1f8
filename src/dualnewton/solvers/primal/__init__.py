"""Primal methods for a quadratic penalty: Newton's method and its sketch."""
