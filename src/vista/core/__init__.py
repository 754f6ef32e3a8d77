"""The method: coverage, teacher, targets and losses, and the class that holds its state."""
