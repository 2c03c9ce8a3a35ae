"""What is recorded of a runtime: for a successor process, and for rebuilding a state."""
