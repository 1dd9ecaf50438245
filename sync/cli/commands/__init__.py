"""The subcommands of `fieldpost-fleet`, one module each; a module exports `command`.

Heavy imports are made inside the command's function, so that `--help` is fast.
"""
