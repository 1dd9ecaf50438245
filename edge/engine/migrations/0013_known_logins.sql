-- The addresses from which accounts have logged in, so that after a restart, too, failed logins of their neighbours
-- do not delay them (`edge/server/login_throttle.py`). A higher id is a later login from a new address.
CREATE TABLE known_logins (
    id INTEGER PRIMARY KEY,
    account INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    address TEXT NOT NULL,
    UNIQUE (account, address)
) STRICT;
