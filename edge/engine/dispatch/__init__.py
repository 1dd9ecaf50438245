"""Hooks of features, and the ways of messages: addresses, destinations, encoders, outputs."""
