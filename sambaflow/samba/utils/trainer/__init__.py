"""Training loops: the same on the device and on the host."""
