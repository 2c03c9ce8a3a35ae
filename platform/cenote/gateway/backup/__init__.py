"""Copies of all that a platform stores, made while it runs, and a new platform made of one."""
