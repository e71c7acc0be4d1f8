"""Small problems, solved completely in one call on one dense block or few sparse rows: a file per family of losses and penalties.

On small data the interpreter takes most of the time, so that nothing is planned, shared or remembered between steps. A family is
a function from a problem to the point found (:class:`~dualnewton.solvers.direct.block.Found`). The problem certifies that point
once, and the general methods continue if the certificate misses the tolerance.
"""
