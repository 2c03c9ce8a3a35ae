"""Helpers for the own process, for both sides of the wall: builtins, threads, signals, modules, memory, metrics."""
