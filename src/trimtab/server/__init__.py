"""Serve agents: store incoming messages, answer them in turns, and deliver the replies."""
