"""SQL of epochs, segments, lost ranges and the state of the uplink."""
