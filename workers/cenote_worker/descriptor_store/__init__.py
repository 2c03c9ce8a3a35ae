"""A process of each node that holds descriptors for others, so that jails outlive the processes that serve them."""
