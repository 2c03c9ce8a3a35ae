"""The gateway's storage: the state folder, the database with its tables, and access to them."""
