"""What commands print: text made safe for a terminal, progress, transcripts of agents, saved figures."""
