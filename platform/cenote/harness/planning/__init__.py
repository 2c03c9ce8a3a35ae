"""What a patch has run again: the plan, and the replay that it foretells."""
