"""The status page, health check and metrics over HTTP: read-only, without any message content."""
