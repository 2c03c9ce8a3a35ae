"""How far a jail gets beyond its limits, in each way of holding them."""
