"""SQL of the outbox and of dead letters."""
