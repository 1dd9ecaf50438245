"""Publish-subscribe (XEP-0060): nodes, affiliations, subscriptions, items and notifications."""
