"""Looking up hidden content by handle and by search."""
