"""Attacks to test a gateway that you operate, by clients with and without accounts.

Attacks run in a separate process (`python -m firmware_sim.attackers`), so that they do not delay
the simulated devices, whose response times are measured.
"""
