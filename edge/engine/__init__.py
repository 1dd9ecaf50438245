"""What features stand on: database, sessions, timers, clock, event log, hooks and router."""
