"""How much an update counts that was trained on an old model."""


def polynomial(staleness: int, exponent: float) -> float:
    """s(d) = (d + 1)^(-a): 1 for a fresh update, less the older it is.

    FedAsync (Xie et al., 2019), section 5.2, "poly"; FedBuff (Nguyen et al., 2022) with a = 1/2.
    """
    return float((staleness + 1) ** -exponent)
