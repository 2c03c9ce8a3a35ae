"""One runtime as its host manages it, over the jails that it has had."""
