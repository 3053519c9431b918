"""Other programs for a section, for hosts with more than every host has.

A variant has the ports of the portable program, and what it needs of the host stands beside it
(`SectionProgram.requires`); the loader takes the first that fits.
"""
