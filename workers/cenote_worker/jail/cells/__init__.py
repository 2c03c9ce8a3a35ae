"""A cell: its source, the checks before it runs, its execution, and what IPython's syntax calls."""
