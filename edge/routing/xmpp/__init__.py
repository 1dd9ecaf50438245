"""Route stanzas to the handlers that features register, and answer them."""
