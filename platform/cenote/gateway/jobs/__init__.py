"""Batch jobs that run in the platform: their tables, who works on them, what clients ask of them."""
