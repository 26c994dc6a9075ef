"""Settings of searches that outside agents drive: the table `[agents]` of kernelpro.toml."""

from dataclasses import dataclass

from kernelpro.errors import SettingsError


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """How many tasks are given out, and how long anyone waits.

    Attributes:
        most_open: tasks of one search that are given out and not answered yet, at most.
        expire_s: when all places are taken, a task that is older than this gives up its own.
        wait_s: longest wait for another process that is writing the memory file.
        poll_s: longest that the tool `job` waits for news before it answers; clients give a call
            up after a minute.
        heartbeat_s: pause between two reports of progress meanwhile.
    """

    most_open: int = 4
    expire_s: float = 3600.0
    wait_s: float = 600.0
    poll_s: float = 20.0
    heartbeat_s: float = 2.0

    def __post_init__(self) -> None:
        if self.most_open < 1:
            raise SettingsError(f"[agents] most_open must be 1 or more, but is {self.most_open}")
        for name in ("expire_s", "wait_s", "poll_s", "heartbeat_s"):
            if not getattr(self, name) >= 0:
                raise SettingsError(
                    f"[agents] {name} must be 0 or more, but is {getattr(self, name)}"
                )
