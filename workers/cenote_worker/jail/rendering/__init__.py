"""Values as text: bounded, and without running code of the values where that can be avoided."""
