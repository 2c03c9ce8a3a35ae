"""States without a copy of their own, as small differences to the latest copy."""
