"""Queues of work: those of queue nodes (XEP-0254) and of shared subscriptions (MQTT-234).

What goes to whom, and what becomes of it, is decided in `rules.queue`.
"""
