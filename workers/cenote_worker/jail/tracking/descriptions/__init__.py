"""Objects as descriptions: a digest of each object's whole content."""
