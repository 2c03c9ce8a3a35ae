"""How much of a history a patch reruns, compared with what it affects."""
