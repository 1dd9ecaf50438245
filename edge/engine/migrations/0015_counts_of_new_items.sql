-- The store of items counts new rows once for each batch (edge/engine/limits/source_usage.py). Triggers for each row took
-- 5 % of the time of a publication.
DROP TRIGGER item_added;
DROP TRIGGER item_source_added;
DROP TRIGGER queue_item_added;
DROP TRIGGER queue_source_added;
