"""The draft of a decision: what would be hidden, and what that leaves."""
