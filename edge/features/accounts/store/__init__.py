"""SQL of accounts, credentials and issued certificates."""
