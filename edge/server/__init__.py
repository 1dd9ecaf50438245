"""The network server: sockets, TLS, connections, sessions, components and the control socket."""
