"""What tests share: real servers and clients on loopback, never fakes of our own code."""
