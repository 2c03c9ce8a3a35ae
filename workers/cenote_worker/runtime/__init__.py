"""One runtime as its host sees it, over the jails that it has had."""
