"""Cost of recording what a cell reads and writes."""
