"""The optimisation problems, their duals, and certificates of the duality gap."""
