"""What a runtime's history says of its steps, and how that is put into words."""
