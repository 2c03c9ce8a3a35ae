"""Jobs of a platform from submission to result."""
