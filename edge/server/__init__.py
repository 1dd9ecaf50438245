"""Sockets and time: everything that waits for the outside."""
