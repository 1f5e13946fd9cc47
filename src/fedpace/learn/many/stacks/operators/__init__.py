"""Operators of stacks: what torch.vmap cannot do for many clients, or does slowly."""
