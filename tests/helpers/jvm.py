"""Options of the JVM in tests: it starts fast and has memory for all reports."""

from __future__ import annotations

FAST_JVM = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m -Xshare:auto"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
"""The simplest compiler and collector. With that compiler alone, the default code cache is 48 MB;
all reports together need more, and without it the JVM fails. Spark's classes are not
verified, which would take a quarter of the time to start."""
