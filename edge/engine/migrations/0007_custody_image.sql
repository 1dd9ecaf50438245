-- Custody is in memory as an image of these rows; limits and keys are checked there. To write few pages in
-- a commit, the only index is that of the few messages for accounts, and a delivered message stays as a row
-- without a body until its key is written to `released_latest`.
CREATE TABLE custody (
    id INTEGER PRIMARY KEY,
    source TEXT NOT NULL, -- bare JID of the sender
    sender TEXT NOT NULL, -- full JID of the sender
    msg_id TEXT NOT NULL,
    destination TEXT NOT NULL,
    recipient TEXT, -- the name of the account in whose outbox it has room; none for the gateway
    digest BLOB NOT NULL, -- SHA-256 of the body
    bytes INTEGER NOT NULL, -- the charge for the limits
    since REAL NOT NULL, -- service seconds
    released INTEGER, -- rises with each delivered message; NULL while the message is held
    body BLOB NOT NULL -- unparsed; empty when it is delivered
) STRICT;

INSERT INTO custody (
    id, source, sender, msg_id, destination, recipient, digest, bytes, since, body
) SELECT id, source, sender, msg_id, destination, recipient, digest, bytes, since, body FROM held;

DROP TABLE held;
DROP TABLE custody_total;

CREATE VIEW held AS
SELECT id, source, sender, msg_id, destination, recipient, digest, bytes, since, body
FROM custody WHERE released IS NULL;

CREATE INDEX custody_by_recipient ON custody (recipient, source, bytes)
    WHERE recipient IS NOT NULL;

-- A message for an account reserves room in that account's outbox while it is held.
CREATE TRIGGER custody_added_for_account AFTER INSERT ON custody WHEN new.recipient IS NOT NULL BEGIN
    UPDATE outbox_total
    SET held_messages = held_messages + 1, held_bytes = held_bytes + new.bytes;
END;
CREATE TRIGGER custody_released_for_account AFTER UPDATE OF recipient ON custody
WHEN old.recipient IS NOT NULL AND new.recipient IS NULL BEGIN
    UPDATE outbox_total
    SET held_messages = held_messages - 1, held_bytes = held_bytes - old.bytes;
END;
CREATE TRIGGER custody_removed_for_account AFTER DELETE ON custody WHEN old.recipient IS NOT NULL BEGIN
    UPDATE outbox_total
    SET held_messages = held_messages - 1, held_bytes = held_bytes - old.bytes;
END;
