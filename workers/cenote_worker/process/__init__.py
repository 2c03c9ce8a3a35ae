"""What both sides of the wall ask of their own process: builtins, threads, signals, modules, memory, metrics."""
