"""A runtime that outlives its process: what it leaves to the next process, and how that takes it over."""
