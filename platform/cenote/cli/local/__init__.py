"""Commands that run jails on this machine."""
