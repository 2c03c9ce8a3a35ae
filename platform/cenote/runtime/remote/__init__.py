"""Runtimes that live on a platform, as their clients hold them."""
