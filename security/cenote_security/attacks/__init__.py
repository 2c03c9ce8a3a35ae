"""Attempts to break out of a jail, and witnesses outside that say whether one did.

An attempt is a function whose source runs inside, in a cell like any other. Its own report is no proof of a wall:
the witnesses give the verdict. The report only shows that the attempt was really made, and how it failed.
"""
