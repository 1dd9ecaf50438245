"""The script for `spark-submit`: `fieldpost-fleet` from the zip of `--py-files`."""

from __future__ import annotations

from sync.cli.main import main

main()
