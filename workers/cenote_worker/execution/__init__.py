"""What one execution gives and leaves: results, traces, transcripts, and their messages."""
