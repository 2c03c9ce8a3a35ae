"""What a step reads and writes: said by its code, and seen in the process that ran it.

Loaded in the jail. Nothing here runs code of the user's classes: objects are looked at through the slots and
dictionaries that the interpreter keeps of them. Whatever cannot be seen counts as read and written.
"""
