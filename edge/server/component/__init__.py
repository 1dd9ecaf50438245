"""The gateway as a component of another server (XEP-0114): its front, its one link, and who speaks
over it."""
