"""Derivatives that forward takes, written out as formulas that can be differentiated again."""
