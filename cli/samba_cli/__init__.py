"""The commands `sambac` and `sambarun`: parse, call, print.

Functions import what they call when they call it: help, and mistakes on the command line, are told
without waiting for the compiler, the runtime or tables.
"""
