"""The transfer of a namespace's state into a checkpoint, another process, or back."""
