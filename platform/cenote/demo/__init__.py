"""The demonstration: three agents, each in a jail of its own, on a real data set."""
