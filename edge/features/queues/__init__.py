"""Queues of work: queue nodes (XEP-0254) and shared subscriptions (MQTT-234)."""
