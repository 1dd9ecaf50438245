"""Alerts from the stream: what has to be known in minutes, told once when it begins and ends.

Reads landing and tables, and writes nothing to them. Starts no Spark.
"""
