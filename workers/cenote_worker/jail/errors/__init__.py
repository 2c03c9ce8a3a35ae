"""The error that ended a cell: its traceback, the failing expression, and hints."""
