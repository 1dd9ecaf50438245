"""A simulated fleet: the segments of many gateways, and the results that reports must show.

Segments are made by the real encoder (`sync.segment`). The expected results ("the truth") are
computed as the documentation requires, independently of the centre's code. The same arguments and
seed give the same bytes.
"""
