"""Pure rules of the event log: levels, epochs, eviction."""
