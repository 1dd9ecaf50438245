"""The tables of the fleet: storage, manifests, maintenance, and the Spark session."""
