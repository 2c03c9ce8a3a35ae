"""The node as Ray actors: its agent, its hosts, and their calls to each other."""
