"""State of the process that no name leads to: of the interpreter, of imported modules, of libraries."""
