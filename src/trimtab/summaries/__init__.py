"""Texts that stand in for what is hidden."""
