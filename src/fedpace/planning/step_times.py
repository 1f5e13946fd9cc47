"""How long a client's step takes by the size of its batch, from the steps that it has done."""

from dataclasses import dataclass, replace

LIKE = 1.3
"""So much more than expected, or less, is more than what times vary by."""


@dataclass(frozen=True, slots=True)
class StepTime:
    """A fixed part and one for each sample; the last step was of `size` samples, and took `seconds`."""

    size: int
    seconds: float
    fixed_s: float = 0.0

    def of(self, size: int) -> float:
        """Seconds of a step with so many samples."""
        if size == self.size:
            return self.seconds
        return self.fixed_s + (self.seconds - self.fixed_s) * size / self.size

    def fixed_share(self, size: int) -> float:
        """The part of such a step's time that does not depend on its size."""
        return self.fixed_s / self.of(size)

    def then(self, size: int, seconds: float) -> "StepTime":
        """This after another step.

        As long as steps take about what was expected, a client is a little faster or slower in all that
        it does. Where they do not, and the sizes differ, the fixed part is what explains both steps, if
        any does; otherwise the client has become another one.
        """
        expected_s = self.of(size)
        if size != self.size and not expected_s / LIKE <= seconds <= expected_s * LIKE:
            each_s = (seconds - self.seconds) / (size - self.size)
            fixed_s = seconds - each_s * size
            if each_s > 0 and fixed_s >= 0:
                return StepTime(size, seconds, fixed_s)
        return replace(self, size=size, seconds=seconds, fixed_s=self.fixed_s * seconds / expected_s)
