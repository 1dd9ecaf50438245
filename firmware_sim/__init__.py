"""A client library for device firmware, and simulated devices, fleets and attacks that use it."""
