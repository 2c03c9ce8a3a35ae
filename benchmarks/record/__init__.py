"""Cost of recording a cell, compared with the same code without a record."""
