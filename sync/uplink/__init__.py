"""The gateway's uplink: seal events into segments and send them to the centre."""
