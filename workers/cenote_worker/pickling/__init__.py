"""How objects are pickled on both sides of the wall: classes by value, tensors, code, large buffers."""
