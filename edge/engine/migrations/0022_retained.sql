-- Subscriptions that have not got all retained items yet: the rest follows as their sessions read (edge/features/pubsub/service/retained.py).
CREATE TABLE retained_progress (
    subscription INTEGER PRIMARY KEY REFERENCES subscriptions (id) ON DELETE CASCADE,
    next TEXT NOT NULL, -- the name from which on nodes are to be read, in the order of names
    last INTEGER NOT NULL -- the newest item when the subscription was made
) STRICT;
-- Retained items that were sent before it was their turn, because another item of their node was published.
CREATE TABLE retained_sent (
    subscription INTEGER NOT NULL REFERENCES retained_progress (subscription) ON DELETE CASCADE,
    item INTEGER NOT NULL, -- number of its row
    PRIMARY KEY (subscription, item)
) STRICT, WITHOUT ROWID;
