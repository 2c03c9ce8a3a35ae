"""What it costs to know what a cell read and wrote."""
