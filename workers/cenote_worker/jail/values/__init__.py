"""Values of the namespace: put in, taken out, pickled for another process, or standing for the client's."""
