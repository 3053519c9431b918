"""Modules with quantized weights."""
