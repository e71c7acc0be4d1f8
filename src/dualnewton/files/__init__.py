"""Files on disk: written whole or not at all, a JSON header with arrays, and the header of an array."""
