"""The calls of one client's stream: checked, queued, carried out, answered."""
