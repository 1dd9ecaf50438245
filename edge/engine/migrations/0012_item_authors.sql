-- The bare JID that has the rights of an item's publisher, if its account was removed: that of the device to
-- which they were given, or '' for none. NULL: the publisher has them.
ALTER TABLE items ADD COLUMN author TEXT;
ALTER TABLE queue_items ADD COLUMN author TEXT;
