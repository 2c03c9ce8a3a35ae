"""Durable checkpoints, on the trusted side: where they lie, how they are read and written. Nothing here unpickles."""
