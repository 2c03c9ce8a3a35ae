"""How values and messages cross the wall: content, packets, chunks."""
