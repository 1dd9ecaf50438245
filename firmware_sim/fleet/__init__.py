"""A simulated fleet: the segments that many gateways would have made over days, and the truth.

Segments are made by the real encoder (`sync.segment`). The truth is computed from the
documentation, independently of the centre's code. The same arguments and seed give the same bytes.
"""
