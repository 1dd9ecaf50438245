"""From a gateway's event log to the centre's reports: segment format, uplink, centre."""
