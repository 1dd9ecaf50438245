"""The centre: what lands here, the tables made of it, and the `fieldpost-fleet` command.

Never imports the gateway. Spark and the HTTP server are imported where they are used, not here.
"""
