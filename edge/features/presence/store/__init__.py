"""SQL of presence and rosters."""
