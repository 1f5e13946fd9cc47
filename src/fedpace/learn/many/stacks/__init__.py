"""Stacks: models of several clients trained as one."""
