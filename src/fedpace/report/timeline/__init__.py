"""Timelines of runs, from their journals: what every client did when, and why each round took as long.

`timeline_of` goes through a journal once (`recorder`), makes spans of it (`spans`) and finds what held
each round up (`blame`). Page, trace and report.json are made of the arrays in `columns`.
"""
