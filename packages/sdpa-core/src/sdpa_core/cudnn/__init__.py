"""The cuDNN backend: rules, graph descriptions, planning with and without a GPU.

Importing this package imports neither ``cudnn`` nor any framework.
"""
