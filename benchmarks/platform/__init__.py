"""Runtimes on a platform, compared with other services that keep namespaces."""
