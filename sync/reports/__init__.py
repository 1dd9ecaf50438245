"""The reports: each module of this package is one report, and is discovered automatically.

A module defines `REPORT` (see `sync.reports.shared.report`): the schema of its rows, the daily
summaries that it reads, the function that computes its rows, and how its table is shown; optionally
the problems that it finds. `delivery.py` is a short example. CONTRIBUTING.md lists the steps to add
a report. Code that several reports share is in `sync.reports.shared`.
"""
