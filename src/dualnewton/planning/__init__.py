"""Which method, at which predicted cost: every comparison of costs."""
