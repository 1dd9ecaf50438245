"""A simulated fleet: the segments that many gateways would have made over days, and the truth.

Segments are made by the real encoder (`sync.segment`); what the centre does with them is not known
here, beyond what its document says. Everything is made from a seed: the same arguments give the
same bytes.
"""
