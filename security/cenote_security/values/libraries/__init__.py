"""Values of optional libraries, one file for each library."""
