"""What keeps model-written code in: policy, rules, the jail's walls, safe loading of values."""
