"""Questions about a history that change nothing."""
