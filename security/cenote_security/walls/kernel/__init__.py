"""The kernel's own interfaces that Python has no names for: system calls, Landlock, BPF."""
