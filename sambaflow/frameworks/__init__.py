"""What SambaFlow adds to the frameworks that models are written in."""
