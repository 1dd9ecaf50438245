"""All SQL of queues."""
