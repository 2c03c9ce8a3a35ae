"""What a step may do, as its code says: bytecode, names, texts of SQL."""
