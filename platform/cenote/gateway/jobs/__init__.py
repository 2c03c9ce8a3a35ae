"""Batch jobs that run in the platform: their tables, the processes that work on them, the calls of clients."""
