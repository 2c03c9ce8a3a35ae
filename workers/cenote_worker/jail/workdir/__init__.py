"""The working directory: requests from outside, files of skills, and its versions."""
