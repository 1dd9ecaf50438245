"""Plain messages to accounts: routing, the offline store, and iqs between sessions."""
