"""Environments that the platform builds for its tenants: their table, and how they are built, copied and removed."""
