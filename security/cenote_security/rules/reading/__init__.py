"""Reads a cell the way a person would: which modules, functions and attributes does it use, whatever they are called?

Nothing here runs or imports anything that the code names; a reading is made of the syntax tree alone.
"""
