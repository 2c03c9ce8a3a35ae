"""Applying plans, and checking what came of them."""
