"""The machine on which the gateway runs: hardware, ports and owners of folders."""
