"""Agents at work: what comes in is kept, answered in turns, and the replies go out."""
