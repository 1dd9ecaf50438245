"""The gateway's part of the uplink: the backlog in its database, and the set-up of uploads."""
