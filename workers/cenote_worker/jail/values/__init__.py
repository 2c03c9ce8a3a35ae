"""Values of the namespace: injected, fetched, pickled for another process, or stubs of the client's."""
