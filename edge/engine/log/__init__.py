"""Events that the engine itself logs: refusals, counters of frequent events, its database."""
