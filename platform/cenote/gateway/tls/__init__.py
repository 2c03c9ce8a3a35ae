"""Certificates: those that clients are shown, and those of the connections between gateway and machines."""
