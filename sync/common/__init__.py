"""Small modules that both halves need: the gateway and the centre."""
