"""SQL of publish-subscribe."""
