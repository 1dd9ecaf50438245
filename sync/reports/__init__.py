"""The reports: each module here is one report, and is found without being listed anywhere.

To add a report, write a module that defines `REPORT` (see `sync.reports.shared.report`): the schema
of its rows, the daily summaries that it reads, the function that computes its rows, and how its
table is shown; optionally the problems that it finds. `lag.py` is a short example. Add its test to
`tests/spark`, and its line to the table of reports in `docs/reference/reports.md`. Code that
several reports share is in `sync.reports.shared`.
"""
