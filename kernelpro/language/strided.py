"""Where kernels over strided rows find an operand, for any target."""

from kernelpro.language.regions import Load, Region


class StridedLoads:
    """What kernels over blocks x columns x inner elements ask of their operands.

    Attributes:
        region: what is computed.
    """

    region: Region

    def _has_lanes(self, load: Load) -> bool:
        """Whether a tensor has an element for each of the rows between a row's elements."""
        return load.repeat == 1 and load.period > 1 and load.period % self.region.inner == 0

    def _block(self, load: Load) -> str:
        """Index of the tensor's block that block b reads."""
        inner = self.region.inner
        if load.period == 1:
            return "0"
        repeat = 1 if self._has_lanes(load) else load.repeat // inner
        period = load.period // inner if self._has_lanes(load) else load.period
        if period == 1:
            return "0"
        index = "b" if repeat == 1 else f"b / {repeat}"
        if repeat * period * inner == self.region.rows:
            return index if repeat == 1 else f"({index})"
        return f"({index} % {period})"
