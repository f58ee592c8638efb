"""How large things are."""
