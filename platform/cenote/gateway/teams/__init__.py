"""Teams whose loop runs in the platform: who is in them, what they do, how far they are, and who works on them."""
