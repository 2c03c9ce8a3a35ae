"""What goes into a namespace: values, classes, functions that stay in this process."""
