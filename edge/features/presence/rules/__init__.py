"""Pure rules of presence and rosters."""
