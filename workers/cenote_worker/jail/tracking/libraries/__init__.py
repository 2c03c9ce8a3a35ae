"""Objects of single libraries as descriptions, one file per library."""
