"""Stream negotiation, SASL, resource binding and stream management."""
