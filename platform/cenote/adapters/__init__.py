"""Adapters: runtimes as the code executors, sandboxes and tools of agent frameworks, one module for each framework.

A module is loaded with its framework, which an extra of the same name brings; nothing else of Cenote imports it.
"""
