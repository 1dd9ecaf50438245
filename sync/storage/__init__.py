"""Storage of segments, tables and summaries: one interface for local disks and object stores."""
