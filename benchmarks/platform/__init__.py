"""Runtimes on a platform, against other ways to keep namespaces behind a line."""
