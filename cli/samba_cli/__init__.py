"""The commands `sambac` and `sambarun`: parse, call, print."""
