"""What modules do when they are called that a recording loses or takes for something else."""
