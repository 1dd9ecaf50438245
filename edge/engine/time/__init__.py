"""The clocks of the machine, service seconds over restarts, and the timer."""
