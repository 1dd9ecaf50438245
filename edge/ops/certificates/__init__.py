"""Certificates of the gateway and of devices: make, read and load them."""
