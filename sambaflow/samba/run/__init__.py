"""A PEF on the device; loaded with the first PEF."""
