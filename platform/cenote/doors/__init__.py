"""Doors: interfaces of other tools, by which they reach runtimes of this process, of a store or of a platform.

Each door attaches to a runtime as an author that has the door's name, so that each step says how it came.
"""
