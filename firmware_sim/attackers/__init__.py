"""Those who wish a gateway ill: floods of all sorts, with an account and without one.

For trials of one's own gateway. They run as a process of their own (`python -m
firmware_sim.attackers`), so that they take no time from the devices whose answers are measured.
"""
