"""Plain messages and relayed iqs as stanzas."""
