-- When the operator revoked a device.
ALTER TABLE accounts ADD COLUMN revoked INTEGER; -- ms since 1970 UTC

-- A random number that sessions remember at log-in; it changes with each revocation and each new account.
ALTER TABLE accounts ADD COLUMN grant INTEGER NOT NULL DEFAULT 0;

-- Certificates of devices, issued by the gateway's CA. Those of a removed device stay, revoked.
CREATE TABLE certificates (
    fingerprint BLOB NOT NULL PRIMARY KEY, -- SHA-256 of the certificate in DER
    account INTEGER REFERENCES accounts (id) ON DELETE SET NULL,
    name TEXT NOT NULL, -- the account's name
    serial TEXT NOT NULL, -- hexadecimal
    issued INTEGER NOT NULL, -- ms since 1970 UTC, as the next two
    not_after INTEGER NOT NULL,
    revoked INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX certificates_by_account ON certificates (account);

-- Rosters (RFC 6121, sections 2 and 3). A row that is not `listed` is only a pending request to see the
-- account's presence; `request` is its stanza until it is answered.
CREATE TABLE roster (
    account INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    jid TEXT NOT NULL, -- bare
    listed INTEGER NOT NULL CHECK (listed IN (0, 1)),
    subscription TEXT NOT NULL CHECK (subscription IN ('none', 'to', 'from', 'both')),
    ask INTEGER NOT NULL CHECK (ask IN (0, 1)), -- the account has requested the contact's presence
    approved INTEGER NOT NULL CHECK (approved IN (0, 1)), -- pre-approval: the contact may see its presence
    request BLOB,
    name TEXT,
    groups TEXT, -- JSON array
    PRIMARY KEY (account, jid)
) STRICT, WITHOUT ROWID;

CREATE INDEX roster_by_jid ON roster (jid);

-- Plain messages for accounts without a session (XEP-0160), as they are sent.
CREATE TABLE offline (
    id INTEGER PRIMARY KEY,
    account INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    stanza BLOB NOT NULL, -- with its address and delay
    sender TEXT NOT NULL, -- full JID
    bytes INTEGER NOT NULL,
    since REAL NOT NULL -- service seconds
) STRICT;

CREATE INDEX offline_by_account ON offline (account, id);

CREATE TABLE offline_total (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    messages INTEGER NOT NULL,
    bytes INTEGER NOT NULL
) STRICT;

INSERT INTO offline_total VALUES (1, 0, 0);

CREATE TRIGGER offline_added AFTER INSERT ON offline BEGIN
    UPDATE offline_total SET messages = messages + 1, bytes = bytes + new.bytes;
END;

CREATE TRIGGER offline_removed AFTER DELETE ON offline BEGIN
    UPDATE offline_total SET messages = messages - 1, bytes = bytes - old.bytes;
END;
