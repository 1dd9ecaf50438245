"""Serve devices by MQTT: listening sockets, connections and sessions."""
