"""A model as a row of layers: layout, flat weights, cuts, widths, and what training it costs."""
