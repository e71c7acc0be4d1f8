"""The other solvers: those that the command ``compare`` asks, too."""

from dualnewton.lab.peers import PEERS, WIDEST_HESSIAN, Peer, preload

__all__ = ["PEERS", "WIDEST_HESSIAN", "Peer", "preload"]
