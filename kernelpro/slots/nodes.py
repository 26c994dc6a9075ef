"""What is known of one machine of a cluster."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A machine that is alive.

    Attributes:
        identity: Ray's, unlike any other's.
        address: where it is.
        resources: what Ray says that it has, by Ray's names: `CPU`, `GPU`.
    """

    identity: str
    address: str
    resources: Mapping[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Short and unlike the others'."""
        return f"{self.address}/{self.identity[:8]}"

    def amount(self, resource: str) -> float:
        """How much it has of a resource."""
        return self.resources.get(resource, 0.0)
