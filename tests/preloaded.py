"""What worker processes import late, imported once in the process that they are forked from."""

import gc

import torch

import fedpace.learn.many.stacks.stacked
import fedpace.learn.many.worker
import fedpace.runs.comparison.compare
import fedpace.runs.learning  # noqa: F401

torch.set_num_threads(1)
gc.collect()
gc.freeze()  # a look for garbage in a child would copy every page that it touches
