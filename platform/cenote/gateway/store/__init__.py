"""What the gateway stores: the state folder, the database with its tables, and who may use it."""
