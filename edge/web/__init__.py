"""The status page, health and metrics over HTTP: nothing is changed by it, and no message told."""
