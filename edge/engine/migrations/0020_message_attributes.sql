-- What the sender of a message in custody says of it beside its content type (edge/engine/dispatch/item_attributes.py): the quality
-- of service, whether a node retains it, its expiry and properties, in MessagePack. NULL has the defaults.
ALTER TABLE custody ADD COLUMN attributes BLOB;
