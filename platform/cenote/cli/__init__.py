"""The `cenote` command: one file per command."""
