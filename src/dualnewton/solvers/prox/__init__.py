"""Newton's method for penalties with kinks and bounds."""
