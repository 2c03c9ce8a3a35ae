"""A cell's output: text, displayed objects, figures, within limits."""
