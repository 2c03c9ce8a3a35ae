"""The process that cells run in: its boundary to the kernel, its context for each author, and its data in /proc."""
