"""The state of a namespace on its way into a checkpoint, another process, or back."""
