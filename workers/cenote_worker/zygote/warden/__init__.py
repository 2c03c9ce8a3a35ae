"""The warden, pid 1 of a jail: starts and ends its processes, keeps the worker's snapshots."""
