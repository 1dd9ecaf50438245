"""Pure rules of publish-subscribe."""
