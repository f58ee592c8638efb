"""The process of `trimtab serve`: what it is composed of, and how it starts and ends."""
