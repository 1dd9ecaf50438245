"""Pure decisions about queues: assignment, transitions, permissions and diagnosis."""
