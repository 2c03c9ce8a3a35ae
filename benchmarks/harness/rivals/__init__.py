"""Notebook systems that re-run cells, each driven in an environment of its own.

A far end is a script of that environment. It imports nothing of this project but `far_end`, and answers on a pipe.
"""
