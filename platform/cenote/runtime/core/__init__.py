"""A runtime without a face, and its way to the namespace, here or on a platform."""
