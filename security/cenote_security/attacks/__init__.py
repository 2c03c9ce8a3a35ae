"""Attempts to break out of a jail, and witnesses outside that say whether one did.

An attempt is a function whose source runs inside, in a cell like any other. What it says there is worth nothing as
proof of a wall: the verdict is the witnesses'. What it says only shows that it was really tried, and how it failed.
"""
