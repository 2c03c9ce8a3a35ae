"""Modules for one third-party library each, and the hooks that run when libraries are loaded."""
