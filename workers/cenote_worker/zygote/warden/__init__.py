"""The warden, pid 1 of a jail: runs and ends its processes, keeps the worker's snapshots."""
