"""Objects of single libraries as descriptions, a library a file."""
