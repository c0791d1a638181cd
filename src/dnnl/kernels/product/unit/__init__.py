"""Register tiles of a matrix unit, and software-pipelined epilogues that run during the next tile's
products."""
