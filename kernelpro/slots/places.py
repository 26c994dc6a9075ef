"""Where slots are: what `--devices` names, and what a process needs to see that device alone."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kernelpro.errors import SettingsError
from kernelpro.judge.device_lock import CORES
from kernelpro.targets import cards


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One device, for one slot.

    Attributes:
        name: short and unlike the others': `0`, `cores 0-3`.
        label: what records say of it: a card's number, name and UUID, or processors.
        environment: variables of every process of the slot.
        cores: processors that they may run on; empty for all.
    """

    name: str
    label: str
    environment: Mapping[str, str] = field(default_factory=dict)
    cores: tuple[int, ...] = ()


def places(
    text: str, device: str, found: Callable[[], Sequence[cards.Card]] = cards.cards
) -> tuple[Place, ...]:
    """Read what `--devices` names.

    Args:
        text: on `cuda` numbers as torch counts them, or UUIDs as nvidia-smi -L prints them; on
            `cpu` processors or ranges of them, such as `0-3,4-7`.
        device: `cuda` or `cpu`.
        found: lists this machine's cards.

    Raises:
        SettingsError: a device is not there, is named twice, or is no number.
    """
    names = [name.strip() for name in text.split(",")]
    made = _on_processor(names) if device == "cpu" else _on_cards(names, found())
    return tuple(made)


def _on_cards(names: Sequence[str], found: Sequence[cards.Card]) -> list[Place]:
    by_index = {str(card.index): card for card in found}
    by_uuid = {card.uuid: card for card in found}
    there = ", ".join(by_index) or "none"
    made: dict[str, Place] = {}
    for name in names:
        if re.fullmatch(r"MIG-[\w/-]+", name):  # CUDA shows a slice only to who asks for it
            card = cards.Card(index=-1, uuid=name, name="a slice of a card")
        elif re.fullmatch(r"\d+|GPU-[\da-f-]+", name):
            key = str(int(name)) if name.isdigit() else name
            if (known := by_index.get(key) or by_uuid.get(key)) is None:
                raise SettingsError(
                    f"--devices names {name}, but the GPUs that this process sees are {there}; "
                    "`nvidia-smi -L` lists them, and CUDA_VISIBLE_DEVICES hides some"
                )
            card = known
        else:
            raise SettingsError(
                f"--devices must be GPU numbers such as 0,1 (or UUIDs), but holds {name!r}"
            )
        if card.uuid in made:
            raise SettingsError(
                f"--devices names GPU {name} twice, but a card takes one judge; name each once"
            )
        number = "" if card.index < 0 else f"cuda:{card.index}, "
        made[card.uuid] = Place(
            name=name,
            label=f"{number}{card.name} ({card.uuid})",
            environment={**cards.visible(card.uuid), **_threads(len(names))},
        )
    return list(made.values())


def _threads(slots: int) -> dict[str, str]:
    """Let several slots share the processors for what runs on them, unless told otherwise."""
    if slots == 1 or "OMP_NUM_THREADS" in os.environ:
        return {}
    return {"OMP_NUM_THREADS": str(max(1, len(os.sched_getaffinity(0)) // slots))}


def _on_processor(names: Sequence[str]) -> list[Place]:
    allowed, taken, made = os.sched_getaffinity(0), set[int](), []
    for name in names:
        if not (match := re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", name)):
            raise SettingsError(
                "--devices on the CPU must be processors or ranges of them such as 0-3,4-7, but "
                f"holds {name!r}"
            )
        first, last = int(match[1]), int(match[2] or match[1])
        cores = range(first, last + 1)
        if not cores or not allowed.issuperset(cores):
            raise SettingsError(
                f"--devices names processors {name}, but this process may run on "
                f"{_ranges(sorted(allowed))}"
            )
        if taken.intersection(cores):
            raise SettingsError(
                f"--devices names processors {name} beside others that overlap them; name each "
                "processor once"
            )
        taken.update(cores)
        made.append(
            Place(
                name=f"cores {name}",
                label=f"processors {name}"
                + (" (others of this machine were at work too)" if len(names) > 1 else ""),
                environment={
                    "OMP_NUM_THREADS": str(len(cores)),
                    CORES: ",".join(map(str, cores)),
                },
                cores=tuple(cores),
            )
        )
    if len({len(place.cores) for place in made}) > 1:
        raise SettingsError(
            "--devices must name equally many processors for each slot, since times on few do not "
            f"compare with times on many, but names {','.join(names)}"
        )
    return made


def _ranges(numbers: Sequence[int]) -> str:
    """Write ascending numbers as ranges: `0-3,8`."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][-1] == number - 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)
