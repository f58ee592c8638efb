"""Conversations that go from model to model in the middle of things, and three judges of them."""
