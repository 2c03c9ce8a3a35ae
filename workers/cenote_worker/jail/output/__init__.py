"""What a cell puts out: text, displayed objects, figures, within limits."""
