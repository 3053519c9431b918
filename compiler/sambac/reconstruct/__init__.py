"""From a file back to the plans that it was made from: to verify them, and to cut sections out."""
