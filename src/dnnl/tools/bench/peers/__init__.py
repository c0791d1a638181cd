"""Other libraries that run the same cases, for their results and their times."""
