"""The states of a runtime outside its jail: stored, copied, made again, and put into a fresh one."""
