"""What is written down of a runtime, for a process that continues with it, and for making a state again."""
