"""States without a copy of their own, as small differences from the latest copy."""
