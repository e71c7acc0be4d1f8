"""Files on disk: atomic replacement, archives of a JSON header with arrays, and the header of an npy array."""
