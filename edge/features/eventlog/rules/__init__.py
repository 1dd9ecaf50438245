"""Rules of the event log without I/O: levels, epochs, eviction, and JSON readings."""
