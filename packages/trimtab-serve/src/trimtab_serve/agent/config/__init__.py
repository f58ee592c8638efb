"""agent.yaml: what may be in it, and what is wrong with it."""
