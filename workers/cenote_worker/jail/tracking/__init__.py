"""What a step reads and writes, according to its code and to the process that ran it.

Loaded in the jail. Nothing here runs code of the user's classes: objects are inspected through the slots and
dictionaries that the interpreter keeps. State that cannot be inspected counts as read and written.
"""
