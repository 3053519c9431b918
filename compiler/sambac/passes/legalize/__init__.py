"""What brings any model into the form that all later stages rely on."""
