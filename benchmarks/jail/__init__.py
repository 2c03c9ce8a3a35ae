"""What a jail costs: start, round trip, system calls, computing, against no sandbox and other sandboxes."""
