"""What runs a namespace: the zygote, the worker inside the jail, the supervisor outside."""
