"""An agent as one file, `agent.yaml`: what it is, what it may do, where it remembers."""
