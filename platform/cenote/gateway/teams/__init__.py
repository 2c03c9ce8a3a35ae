"""Teams whose loop runs in the platform: their members, runs and events, and the processes that work on them."""
