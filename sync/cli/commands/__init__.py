"""The subcommands of `fieldpost-fleet`, one module each, found by `sync.cli.main`.

A module exports `command`, and imports what is heavy inside the command's function.
"""
