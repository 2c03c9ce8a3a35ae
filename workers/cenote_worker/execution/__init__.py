"""The products of one execution: results, traces, transcripts, and their messages."""
