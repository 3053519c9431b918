"""Tensors that have a name on the device."""
