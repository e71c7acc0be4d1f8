"""Specifications of objectives, certificates of models of any library, and model files.

Estimators, the command line, model files and ``certify`` all describe the objective by a :class:`Specification`.
"""
