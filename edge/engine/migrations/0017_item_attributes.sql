-- Items of other protocols than XMPP: the content type of the payload ('': an XML element), the highest quality of
-- service of its deliveries, properties (MessagePack; NULL: none), and, for queues, whether it was to be retained.
ALTER TABLE items ADD COLUMN content_type TEXT NOT NULL DEFAULT '';
ALTER TABLE items ADD COLUMN qos INTEGER NOT NULL DEFAULT 2;
ALTER TABLE items ADD COLUMN properties BLOB;
ALTER TABLE queue_items ADD COLUMN qos INTEGER NOT NULL DEFAULT 2;
ALTER TABLE queue_bodies ADD COLUMN content_type TEXT NOT NULL DEFAULT '';
ALTER TABLE queue_bodies ADD COLUMN retain INTEGER NOT NULL DEFAULT 0;
ALTER TABLE queue_bodies ADD COLUMN properties BLOB;
