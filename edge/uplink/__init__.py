"""The gateway's part of the uplink: the store as its backlog, and its set-up."""
