"""How much each tenant stores, and its limits."""
