"""The node as Ray actors: its agent, its hosts, and what they ask of each other."""
