"""What the reports share: how a report is declared, computed and shown."""
