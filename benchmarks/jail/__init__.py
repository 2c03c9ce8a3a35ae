"""Cost of a jail: start, round trip, system calls, computing, compared with no sandbox and other sandboxes."""
