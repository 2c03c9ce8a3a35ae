"""What a step may do, according to its code: bytecode, names, texts of SQL."""
