"""What has happened in a runtime: its steps, as a tree to which things are only added."""
