"""The engine below the features: database, sessions, timers, clock, event log and hooks."""
