"""How far a jail exceeds its limits, for each way of enforcing them."""
