"""Small modules that the gateway and the centre share."""
