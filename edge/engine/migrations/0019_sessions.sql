-- Sessions whose state outlives their connections and the process.
CREATE TABLE durable_sessions (
    full TEXT PRIMARY KEY, -- address of the session
    account INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    seconds REAL NOT NULL, -- how long the state is kept while no session has the address
    expires REAL -- service second at which it ends; NULL while a session has the address
) STRICT, WITHOUT ROWID;
CREATE INDEX durable_sessions_by_account ON durable_sessions (account);
CREATE INDEX durable_sessions_by_expiry ON durable_sessions (expires);

-- The order in which messages were sent to a session that gets them again in this order.
ALTER TABLE outbox ADD COLUMN turn INTEGER NOT NULL DEFAULT 0;
