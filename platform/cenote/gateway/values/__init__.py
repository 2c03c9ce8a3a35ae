"""Plain values of the gateway: names, callers, quotas, bounds, fair queueing. None of it does I/O."""
