"""Files of the working directory, and what a step did to them."""
