"""The link between the core and a front process."""
