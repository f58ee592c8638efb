"""An agent in one file, `agent.yaml`: its model, its tools, its limits and its store."""
