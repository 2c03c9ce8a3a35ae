"""Objects as descriptions: what each holds, all the way down, as a digest."""
