-- The outbox: messages for devices with quality of service, in the order of each account, with the
-- state of each exchange. The number is a part of the msgId on the wire and is never used twice.
CREATE TABLE outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    recipient TEXT NOT NULL, -- the account's name
    account INTEGER REFERENCES accounts (id) ON DELETE SET NULL, -- NULL when it is removed
    source TEXT NOT NULL, -- bare JID of the original sender
    sender TEXT NOT NULL, -- its full JID
    msg_id TEXT, -- the sender's msgId; NULL at level 1
    qos INTEGER NOT NULL CHECK (qos IN (1, 2)),
    state TEXT NOT NULL DEFAULT 'queued' CHECK ( -- with IN, each write would build a table of the six values
        state = 'queued' OR state = 'offered' OR state = 'repeated' OR state = 'received'
        OR state = 'released' OR state = 'plain'
    ),
    session TEXT, -- the full JID that it was sent to last, or that has received it
    sends INTEGER NOT NULL DEFAULT 0, -- stanzas of the present step since the last answer
    attempts INTEGER NOT NULL DEFAULT 0, -- those that count as attempts
    held INTEGER NOT NULL DEFAULT 0 CHECK (held IN (0, 1)), -- the device asked to wait
    due REAL, -- service seconds: when to retry
    bytes INTEGER NOT NULL, -- the charge for the limits
    since REAL NOT NULL -- service seconds
) STRICT;

CREATE INDEX outbox_by_account ON outbox (account, state, source, id, bytes);

CREATE INDEX outbox_by_source ON outbox (source, bytes);

CREATE INDEX outbox_due ON outbox (due) WHERE due IS NOT NULL;

CREATE INDEX outbox_by_age ON outbox (since);

-- Bodies in a table of their own, because the rows above are written several times.
CREATE TABLE outbox_bodies (
    id INTEGER PRIMARY KEY REFERENCES outbox (id) ON DELETE CASCADE,
    body BLOB NOT NULL
) STRICT;

CREATE TABLE outbox_total (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    messages INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    held_messages INTEGER NOT NULL, -- messages in custody for this account
    held_bytes INTEGER NOT NULL
) STRICT;

INSERT INTO outbox_total VALUES (1, 0, 0, 0, 0);

CREATE TRIGGER outbox_added AFTER INSERT ON outbox BEGIN
    UPDATE outbox_total SET messages = messages + 1, bytes = bytes + new.bytes;
END;

CREATE TRIGGER outbox_removed AFTER DELETE ON outbox BEGIN
    UPDATE outbox_total SET messages = messages - 1, bytes = bytes - old.bytes;
END;

-- A message in custody for an account reserves room in that account's outbox.
ALTER TABLE held ADD COLUMN recipient TEXT; -- the account's name; none for the gateway

CREATE INDEX held_by_recipient ON held (recipient, source, bytes) WHERE recipient IS NOT NULL;

CREATE TRIGGER held_added_for_account AFTER INSERT ON held WHEN new.recipient IS NOT NULL BEGIN
    UPDATE outbox_total
    SET held_messages = held_messages + 1, held_bytes = held_bytes + new.bytes;
END;

CREATE TRIGGER held_removed_for_account AFTER DELETE ON held WHEN old.recipient IS NOT NULL BEGIN
    UPDATE outbox_total
    SET held_messages = held_messages - 1, held_bytes = held_bytes - old.bytes;
END;

-- The state of a dead letter, and what is needed to resume its exchange.
ALTER TABLE dead ADD COLUMN state TEXT NOT NULL DEFAULT 'refused'
    CHECK (state IN ('refused', 'failed', 'in doubt'));

ALTER TABLE dead ADD COLUMN recipient TEXT; -- the account's name; none for the gateway

ALTER TABLE dead ADD COLUMN outbox INTEGER; -- its row in the outbox, a part of the msgId on the wire

ALTER TABLE dead ADD COLUMN session TEXT; -- the full JID that has received it

-- The source with most dead letters is evicted first.
ALTER TABLE dead ADD COLUMN source TEXT NOT NULL DEFAULT ''; -- bare JID of the sender

UPDATE dead SET source = substr(sender, 1, instr(sender || '/', '/') - 1);

CREATE INDEX dead_by_source ON dead (source, id, bytes);

-- Whether a device without quality of service is sent plain messages instead.
ALTER TABLE accounts ADD COLUMN downgrade INTEGER NOT NULL DEFAULT 0 CHECK (downgrade IN (0, 1));

-- How much each source has stored for others.
ALTER TABLE offline ADD COLUMN source TEXT NOT NULL DEFAULT ''; -- bare JID of the sender

UPDATE offline SET source = substr(sender, 1, instr(sender || '/', '/') - 1);

CREATE INDEX offline_by_source ON offline (source, account, bytes);

-- Covering index: sums of sizes do not read the stanzas.
DROP INDEX offline_by_account;

CREATE INDEX offline_by_account ON offline (account, id, bytes);
