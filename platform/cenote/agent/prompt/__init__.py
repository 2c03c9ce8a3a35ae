"""What a model reads: instructions, the namespace, and what came of its blocks."""
