"""Certificates: those for clients, and those of the connections between gateway and machines."""
