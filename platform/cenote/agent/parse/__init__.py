"""From a model's text to the code or the patch in it."""
