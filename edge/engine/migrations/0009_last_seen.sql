-- When an account had its last session, in ms since 1970 UTC: 0 while it has one, NULL if it never had
-- one. It is written with the heartbeats, because a session begins and ends without a commit to the disk.
ALTER TABLE accounts ADD COLUMN seen INTEGER;
