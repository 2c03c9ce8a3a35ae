"""What users hold of a runtime: the synchronous and the asynchronous face, its files and processes."""
