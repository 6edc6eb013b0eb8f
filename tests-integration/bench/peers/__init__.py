"""Who is measured: one module for each implementation, all with the interface of ``base.Peer``."""
