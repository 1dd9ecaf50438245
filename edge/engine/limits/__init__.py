"""Usage of limits, and of the flash card."""
