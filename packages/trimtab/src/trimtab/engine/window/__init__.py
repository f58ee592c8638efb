"""What the model sees now, folded from the log."""
