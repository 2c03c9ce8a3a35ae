"""What checkpoints cost."""
