"""Benchmarks of Cenote against other ways to run an agent's code. `python -m benchmarks` runs them."""
