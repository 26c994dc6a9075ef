"""What `--devices` names, and which physical card a number means."""

import os
import uuid

import pytest

from kernelpro.errors import SettingsError, TargetError
from kernelpro.slots.places import places
from kernelpro.targets.cards import Card, cards, visible

UUIDS = [uuid.UUID(int=number + 1) for number in range(3)]


class Driver:
    """CUDA's driver as far as `cards` asks it, with cards of these UUIDs."""

    def __init__(self, uuids, init=0):
        self.uuids, self.init = uuids, init

    def cuInit(self, flags):
        return self.init

    def cuDeviceGetCount(self, count):
        count._obj.value = len(self.uuids)
        return 0

    def cuDeviceGet(self, device, index):
        device._obj.value = 100 + index  # a handle is no index
        return 0

    def cuDeviceGetName(self, name, size, device):
        name.value = f"Toy {device.value}".encode()[: size - 1]
        return 0

    def cuDeviceGetUuid(self, raw, device):
        raw._obj[:] = self.uuids[device.value - 100].bytes
        return 0


def on_cards(text):
    return places(text, "cuda", lambda: cards(Driver(UUIDS)))


def test_cards_are_those_that_cuda_shows_with_their_uuids():
    assert cards(Driver(UUIDS[1:])) == [
        Card(index=0, uuid=f"GPU-{UUIDS[1]}", name="Toy 100"),
        Card(index=1, uuid=f"GPU-{UUIDS[2]}", name="Toy 101"),
    ]
    assert cards(Driver([], init=100)) == []
    with pytest.raises(TargetError, match="cuInit with error 999"):
        cards(Driver(UUIDS, init=999))


def test_a_slot_sees_its_card_alone_by_uuid():
    second, first = on_cards(f"2,GPU-{UUIDS[0]}")
    assert second.environment.items() >= visible(f"GPU-{UUIDS[2]}").items()
    assert first.environment["CUDA_VISIBLE_DEVICES"] == f"GPU-{UUIDS[0]}"
    assert second.label == f"cuda:2, Toy 102 (GPU-{UUIDS[2]})"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0,3", "names 3, but the GPUs that this process sees are 0, 1, 2"),
        ("1,1", "names GPU 1 twice"),
        (f"0,GPU-{UUIDS[0]}", "twice"),
        ("0,one", "must be GPU numbers .* holds 'one'"),
        ("0,-1", "holds '-1'"),
        ("", "holds ''"),
    ],
)
def test_a_wrong_list_of_cards_is_refused_in_one_sentence(text, words):
    with pytest.raises(SettingsError, match=words):
        on_cards(text)


def test_a_slot_on_the_processor_has_its_cores_and_as_many_threads(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    first, second = places("0-1,2-3", "cpu")
    assert (first.cores, second.cores) == ((0, 1), (2, 3))
    assert first.environment == {"OMP_NUM_THREADS": "2", "KERNELPRO_CORES": "0,1"}
    assert "others of this machine were at work too" in second.label
    assert "others" not in places("0", "cpu")[0].label


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0,9", "processors 9, but this process may run on 0-3"),
        ("0-1,1-2", "overlap"),
        ("0,1-2", "equally many processors"),
        ("2-1", "processors 2-1"),
        ("0,GPU-1", "holds 'GPU-1'"),
    ],
)
def test_a_wrong_list_of_processors_is_refused_in_one_sentence(text, words, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    with pytest.raises(SettingsError, match=words):
        places(text, "cpu")
