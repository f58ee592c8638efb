"""Modules for frameworks: one file for each framework, over `conversations.py`."""
