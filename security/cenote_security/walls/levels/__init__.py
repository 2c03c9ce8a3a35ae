"""The isolation levels, one file for each, and what only levels use."""
