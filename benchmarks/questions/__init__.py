"""What questions about a long history cost."""
