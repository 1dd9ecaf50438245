"""The `fieldpost-fleet` command."""
