"""Accounts of provisioned devices: their passwords, certificates and relations to others."""
