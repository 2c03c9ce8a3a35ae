"""Values as text: bounded, and without running the values' code if possible."""
