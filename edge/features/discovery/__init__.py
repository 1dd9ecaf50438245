"""Service discovery: advertise the gateway's features, and find out those of devices."""
