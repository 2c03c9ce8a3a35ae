"""Work that continues without its clients: processes that are restarted until a team or a job is done."""
