"""Changes of a history, as data."""
