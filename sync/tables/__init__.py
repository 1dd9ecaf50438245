"""The tables of the fleet: Delta Lake, storage, maintenance, and the Spark session."""
