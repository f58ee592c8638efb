"""Erasure, export and retention of what people said."""
