"""What the gateway keeps, in SQLite: the only rooms where SQL is spoken.

`database` opens it, `commit` runs units of work in groups, and each other file has one kind of row.
"""
