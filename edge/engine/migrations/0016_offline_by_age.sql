-- Messages expire by age; their numbers do not follow it, because messages that return from a session are moved.
CREATE INDEX offline_by_age ON offline (since);
