"""A page of one session: what the model saw in each call, what was hidden, and what it cost."""
