"""How tests run Spark's JVM: what starts soonest, and has room for all reports."""

from __future__ import annotations

FAST_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m -Xshare:auto"
"""The simplest compiler and collector. With that compiler alone a JVM has 48 MB for code unless it
is told otherwise; all reports together take more, and then it dies."""
