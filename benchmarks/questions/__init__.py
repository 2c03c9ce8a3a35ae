"""Cost of questions about a long history."""
