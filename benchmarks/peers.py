"""The solvers of other libraries, the same as in the command ``compare``."""

from dualnewton.lab.peers import PEERS, WIDEST_HESSIAN, Peer, preload

__all__ = ["PEERS", "WIDEST_HESSIAN", "Peer", "preload"]
