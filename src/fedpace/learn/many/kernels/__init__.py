"""Kernels in Triton, for many clients at once that have weights of their own.

Triton comes along with torch where it is built for CUDA on Linux; nothing else imports these modules
before it is known to be there. What one client gets does not depend on who is beside it.
"""
