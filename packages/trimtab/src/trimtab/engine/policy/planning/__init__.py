"""A plan: the draft of a decision, and the size of what it would leave."""
