"""Puts a module and a bank's inputs into a worker: the reference, a candidate, at any sizes."""

from typing import Any

from kernelpro.judge.inputs import Bank
from kernelpro.judge.settings import JudgeSettings
from kernelpro.judge.workers import WorkerProcess


def place(
    worker: WorkerProcess, bank: Bank, op: str, settings: JudgeSettings, **fields: Any
) -> bool:
    """Have a worker make its module, give it the bank's parameters, and stage the inputs.

    Args:
        worker: it has the bank's block already.
        bank: whose inputs and parameters.
        op: the worker's operation that makes the module.
        settings: deadlines.
        fields: what that operation takes beside the seed.

    Returns:
        Whether the module has taken the bank's parameters.

    Raises:
        Failure: the worker failed.
    """
    reply = worker.channel.request(op, settings.load_deadline_s, seed=bank.seed, **fields)
    same: bool = reply.get("parameters") == bank.parameters
    if same and bank.places:
        worker.channel.request("overwrite", settings.call_deadline_s, places=bank.places)
    if bank.on_device and not worker.shares_device:
        bank.leave_device()
        worker.attach(bank.descriptor, bank.block_bytes, settings.start_deadline_s)
    if bank.on_device:
        for index, each in enumerate(bank.sets):
            bank.copy_set(index, worker.out)
            worker.channel.request(
                "take", settings.call_deadline_s, tree=each.tree, first=index == 0
            )
    worker.channel.request(
        "stage",
        settings.call_deadline_s,
        sets=[s.tree for s in bank.sets],
        taken=bank.on_device,
        swappable=bank.swappable,
        spliceable=bank.spliceable,
        dithered=bank.dithered,
    )
    return same


def construct(worker: WorkerProcess, bank: Bank, settings: JudgeSettings) -> bool:
    """Make a loaded candidate's module anew for a bank, whose block it is given first.

    Raises:
        Failure: the worker failed.
    """
    worker.attach(bank.descriptor, bank.block_bytes, settings.start_deadline_s)
    return place(worker, bank, "construct", settings, args=bank.args, kwargs=bank.kwargs)
