"""The choice of the method: all predictions and comparisons of costs."""
