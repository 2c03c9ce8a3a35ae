"""What keeps model-written code in: policy, rules, the jail's walls, safe loading of values."""

from cenote_security.former_names import find_former_names

find_former_names()
