"""What of a state can be made again by running steps of its history again, and by which. Nothing here runs any."""
