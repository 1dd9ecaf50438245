"""Rules of presence and rosters without I/O."""
