"""The audit log: who ran what where, in files that reveal changes and truncation."""
