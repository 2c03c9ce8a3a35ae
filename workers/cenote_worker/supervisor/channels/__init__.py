"""The sockets and pipes of a jail, as its supervisor reads and writes them."""
