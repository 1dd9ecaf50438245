-- The version of an account's roster (RFC 6121, section 2.6), random so that it never returns, not even after
-- a restored backup; NULL until the roster has its first contact. Triggers set it, so that every change of
-- what the account sees of its roster does, also a removal by cascade.
ALTER TABLE accounts ADD COLUMN roster_version TEXT;

UPDATE accounts SET roster_version = lower(hex(randomblob(8)))
WHERE EXISTS (SELECT 1 FROM roster WHERE account = accounts.id AND listed = 1);

CREATE TRIGGER roster_contact_added AFTER INSERT ON roster WHEN new.listed = 1 BEGIN
    UPDATE accounts SET roster_version = lower(hex(randomblob(8))) WHERE id = new.account;
END;
CREATE TRIGGER roster_contact_changed AFTER UPDATE ON roster
WHEN (old.listed, old.subscription, old.ask, old.approved, old.name, old.groups)
    IS NOT (new.listed, new.subscription, new.ask, new.approved, new.name, new.groups) BEGIN
    UPDATE accounts SET roster_version = lower(hex(randomblob(8))) WHERE id = new.account;
END;
CREATE TRIGGER roster_contact_removed AFTER DELETE ON roster WHEN old.listed = 1 BEGIN
    UPDATE accounts SET roster_version = lower(hex(randomblob(8))) WHERE id = old.account;
END;
