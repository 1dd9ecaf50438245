"""For each protocol, the registry of its handlers in the features, its router and its answers."""
