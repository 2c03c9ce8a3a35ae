"""The kernel's side of a jail: namespaces, private root, Landlock, seccomp, limits.

Loaded inside zygotes and jails: the standard library only, light at import.
"""
