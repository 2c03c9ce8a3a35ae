"""Work that goes on in the platform without its clients: processes that are started again until it is done."""
