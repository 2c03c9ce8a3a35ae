"""Doors: interfaces for other tools to reach runtimes of this process, of a store or of a platform.

Each door attaches to a runtime as an author with the door's name, so that each step shows where it came from.
"""
