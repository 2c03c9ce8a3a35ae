"""The states of a runtime outside its jail: stored, copied, rebuilt, and put into a fresh one."""
