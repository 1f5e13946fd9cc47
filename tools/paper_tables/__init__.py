"""Tables of papers, run anew: configs in configs/papers, results in docs/measured."""
