"""The event log on its way: segment format, uplink, centre."""
