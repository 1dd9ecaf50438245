"""The status page, health check and metrics over HTTP: read-only and without message contents."""
