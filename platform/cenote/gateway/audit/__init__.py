"""The audit log: who ran what where, in files that show when something was changed or cut off."""
