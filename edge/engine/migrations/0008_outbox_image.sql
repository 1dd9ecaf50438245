-- The outbox is in memory as an image of its rows; rows are found, and their use of limits is counted,
-- there. To write few pages in a commit, the only index is that of the reference to accounts.
DROP INDEX outbox_by_account;
DROP INDEX outbox_by_source;
DROP INDEX outbox_by_age;
DROP INDEX outbox_due;
DROP INDEX custody_by_recipient;
DROP TRIGGER outbox_added;
DROP TRIGGER outbox_removed;
DROP TRIGGER custody_added_for_account;
DROP TRIGGER custody_released_for_account;
DROP TRIGGER custody_removed_for_account;
DROP TABLE outbox_total;

CREATE INDEX outbox_by_account ON outbox (account);
