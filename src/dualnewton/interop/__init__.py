"""From words to problems and back: specifications, certificates of anybody's models, and files.

Estimators, the command line, model files and ``certify`` all say what is minimised as a :class:`Specification`.
"""
