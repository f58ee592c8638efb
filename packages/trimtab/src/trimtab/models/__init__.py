"""What is known of models: families, windows, prices."""
