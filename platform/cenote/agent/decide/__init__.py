"""What an agent decides: values in, commands out, no I/O and no clock."""
