"""A runtime that outlives its process: what it leaves to the next one, and how that takes it over."""
