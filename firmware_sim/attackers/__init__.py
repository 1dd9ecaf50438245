"""Attacks on a gateway of your own, with an account and without.

They run in a process of their own (`python -m firmware_sim.attackers`), so that they take no time
from the devices whose response times are measured.
"""
