"""What is minimised, and the proof of how good a point is."""
