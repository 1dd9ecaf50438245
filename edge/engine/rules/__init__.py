"""Pure rules: rights, quotas, room in the database, delays of commits, service time."""
