"""What `spark-submit` runs: `fieldpost-fleet`, from the zip that `--py-files` brings."""

from __future__ import annotations

from sync.cli.main import main

main()
