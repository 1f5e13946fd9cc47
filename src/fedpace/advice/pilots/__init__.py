"""The second part of advice: short training runs of a few candidates, by successive halving."""
