"""Bound sessions and their life."""
