"""What the record of a cell costs, beside the same code without one."""
