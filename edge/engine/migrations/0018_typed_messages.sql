-- Rows store what a device handed over unchanged, with its content type, and the gateway's own messages as the fields
-- of a type, which `kind` names (edge/engine/dispatch/encoding.py). Both are encoded when they are sent. A message of an older
-- version stays the XML that was made when it was stored; in `offline`, that has its time of receipt already.
ALTER TABLE custody ADD COLUMN content_type TEXT NOT NULL DEFAULT '';
ALTER TABLE outbox_bodies ADD COLUMN kind TEXT NOT NULL DEFAULT '';
ALTER TABLE outbox_bodies ADD COLUMN content_type TEXT NOT NULL DEFAULT '';
ALTER TABLE dead ADD COLUMN kind TEXT NOT NULL DEFAULT '';
ALTER TABLE dead ADD COLUMN content_type TEXT NOT NULL DEFAULT '';
ALTER TABLE notifications ADD COLUMN kind TEXT NOT NULL DEFAULT '';
ALTER TABLE offline ADD COLUMN kind TEXT NOT NULL DEFAULT '';
ALTER TABLE offline ADD COLUMN content_type TEXT NOT NULL DEFAULT '';
ALTER TABLE offline ADD COLUMN received INTEGER; -- ms since 1970
UPDATE offline SET kind = 'encoded failure report' WHERE substr(stanza, 1, 21) = CAST('<message type=''error''' AS BLOB);
