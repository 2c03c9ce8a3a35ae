"""How much a patch has run again, against what it truly affects."""
