-- Messages that the gateway publishes when a session is lost.
CREATE TABLE wills (
    full TEXT PRIMARY KEY, -- address of the session
    account INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    topic TEXT NOT NULL,
    payload BLOB NOT NULL,
    content_type TEXT NOT NULL,
    attributes BLOB, -- others of the message (item_attributes); NULL for the defaults
    bytes INTEGER NOT NULL, -- that count towards limits.will_bytes
    delay REAL NOT NULL, -- seconds from the loss of the session to the publication
    due REAL -- service second of the publication; NULL while the session exists
) STRICT, WITHOUT ROWID;
CREATE INDEX wills_by_account ON wills (account);
CREATE INDEX wills_by_due ON wills (due) WHERE due IS NOT NULL;
