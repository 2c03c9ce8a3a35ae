"""Commands for a platform: its operator's, and its users'."""
