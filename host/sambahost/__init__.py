"""What a Python program needs to drive the device, whichever API it uses."""
