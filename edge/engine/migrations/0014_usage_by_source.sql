-- How much of the stores of items each source uses, counted by triggers, so that no source can use them up
-- (edge/engine/rules/quota.py). A source is an item's author or, for a shared subscription, of the account that
-- holds it: its first member, because its subscription is what stores the items.
ALTER TABLE queues ADD COLUMN owner TEXT; -- of a shared subscription
UPDATE queues SET owner = (
    SELECT substr(s.jid, 1, instr(s.jid || '/', '/') - 1) FROM subscriptions AS s
    WHERE s.queue = queues.id ORDER BY s.id LIMIT 1
) WHERE share IS NOT NULL;

CREATE TABLE item_sources (
    source TEXT NOT NULL PRIMARY KEY,
    items INTEGER NOT NULL,
    bytes INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO item_sources (source, items, bytes)
SELECT coalesce(author, substr(publisher, 1, instr(publisher || '/', '/') - 1)) AS source, count(*), sum(bytes)
FROM items GROUP BY 1;

CREATE TABLE queue_sources (
    source TEXT NOT NULL PRIMARY KEY,
    items INTEGER NOT NULL,
    bytes INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO queue_sources (source, items, bytes)
SELECT coalesce(q.owner, i.author, substr(i.publisher, 1, instr(i.publisher || '/', '/') - 1)), count(*), sum(i.bytes)
FROM queue_items AS i JOIN queues AS q ON q.id = i.queue GROUP BY 1;

CREATE TRIGGER item_source_added AFTER INSERT ON items BEGIN
    INSERT INTO item_sources (source, items, bytes)
    VALUES (coalesce(new.author, substr(new.publisher, 1, instr(new.publisher || '/', '/') - 1)), 1, new.bytes)
    ON CONFLICT (source) DO UPDATE SET items = items + 1, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER item_source_removed AFTER DELETE ON items BEGIN
    UPDATE item_sources SET items = items - 1, bytes = bytes - old.bytes
    WHERE source = coalesce(old.author, substr(old.publisher, 1, instr(old.publisher || '/', '/') - 1));
END;
CREATE TRIGGER item_source_empty AFTER UPDATE ON item_sources WHEN new.items = 0 BEGIN
    DELETE FROM item_sources WHERE source = new.source;
END;

CREATE TRIGGER queue_source_added AFTER INSERT ON queue_items BEGIN
    INSERT INTO queue_sources (source, items, bytes)
    VALUES (
        coalesce(
            (SELECT owner FROM queues WHERE id = new.queue),
            new.author, substr(new.publisher, 1, instr(new.publisher || '/', '/') - 1)
        ), 1, new.bytes
    )
    ON CONFLICT (source) DO UPDATE SET items = items + 1, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER queue_source_removed AFTER DELETE ON queue_items BEGIN
    UPDATE queue_sources SET items = items - 1, bytes = bytes - old.bytes
    WHERE source = coalesce(
            (SELECT owner FROM queues WHERE id = old.queue),
            old.author, substr(old.publisher, 1, instr(old.publisher || '/', '/') - 1)
    );
END;
-- The author changes if the publisher's account is removed.
CREATE TRIGGER item_source_changed AFTER UPDATE OF author ON items BEGIN
    UPDATE item_sources SET items = items - 1, bytes = bytes - old.bytes
    WHERE source = coalesce(old.author, substr(old.publisher, 1, instr(old.publisher || '/', '/') - 1));
    INSERT INTO item_sources (source, items, bytes) VALUES (coalesce(new.author, substr(new.publisher, 1, instr(new.publisher || '/', '/') - 1)), 1, new.bytes)
    ON CONFLICT (source) DO UPDATE SET items = items + 1, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER queue_source_changed AFTER UPDATE OF author ON queue_items
WHEN (SELECT owner FROM queues WHERE id = new.queue) IS NULL BEGIN
    UPDATE queue_sources SET items = items - 1, bytes = bytes - old.bytes
    WHERE source = coalesce(old.author, substr(old.publisher, 1, instr(old.publisher || '/', '/') - 1));
    INSERT INTO queue_sources (source, items, bytes) VALUES (coalesce(new.author, substr(new.publisher, 1, instr(new.publisher || '/', '/') - 1)), 1, new.bytes)
    ON CONFLICT (source) DO UPDATE SET items = items + 1, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER queue_source_empty AFTER UPDATE ON queue_sources WHEN new.items = 0 BEGIN
    DELETE FROM queue_sources WHERE source = new.source;
END;

-- A full backlog loses the segments of the source that fills it first, and those with urgent events of others last
-- (edge/features/eventlog/rules/eviction.py).
ALTER TABLE segments ADD COLUMN source TEXT;
ALTER TABLE segments ADD COLUMN spared INTEGER NOT NULL DEFAULT 0 CHECK (spared IN (0, 1, 2));
CREATE INDEX segments_waiting ON segments (lane, spared, source, bytes) WHERE state = 'waiting';

-- If the account that holds a shared subscription leaves it, its next member holds it.
CREATE TRIGGER share_left AFTER DELETE ON subscriptions WHEN old.queue IS NOT NULL BEGIN
    UPDATE queues SET owner = (
        SELECT substr(s.jid, 1, instr(s.jid || '/', '/') - 1) FROM subscriptions AS s
        WHERE s.queue = old.queue ORDER BY s.id LIMIT 1
    )
    WHERE id = old.queue AND owner = substr(old.jid, 1, instr(old.jid || '/', '/') - 1)
        AND EXISTS (SELECT 1 FROM subscriptions WHERE queue = old.queue)
        AND NOT EXISTS (
            SELECT 1 FROM subscriptions WHERE queue = old.queue AND account = old.account
        );
END;
CREATE TRIGGER share_given AFTER UPDATE OF owner ON queues
WHEN old.owner <> new.owner AND new.items > 0 BEGIN
    UPDATE queue_sources SET items = items - new.items, bytes = bytes - new.bytes
    WHERE source = old.owner;
    INSERT INTO queue_sources (source, items, bytes) VALUES (new.owner, new.items, new.bytes)
    ON CONFLICT (source) DO UPDATE
    SET items = items + excluded.items, bytes = bytes + excluded.bytes;
END;
