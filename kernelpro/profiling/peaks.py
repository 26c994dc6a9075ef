"""The measured peaks of the machine under a target, for collectors that report shares of them."""

from kernelpro.errors import TargetError
from kernelpro.records import Machine


def machine(target: str) -> Machine | None:
    """What the target's machine can do, from the target's own cache; None when it cannot be used.

    Args:
        target: `cpu` or `cuda`.
    """
    from kernelpro import targets

    try:
        return targets.get(target).machine()
    except TargetError:
        return None
