"""The configuration of a gateway: options, limits, loading, and the annotated file."""
