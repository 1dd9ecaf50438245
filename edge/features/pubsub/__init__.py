"""Publish-subscribe (XEP-0060): nodes, subscriptions, items. Each module handles its requests.

Queues, which nodes and shares have, are `handlers.queues`'.
"""
