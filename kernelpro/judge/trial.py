"""One bank of secret inputs with the baseline's worker on it, where candidates are tried."""

from dataclasses import replace

from kernelpro.errors import JudgeError
from kernelpro.judge import baselines, light_build, processes
from kernelpro.judge.channel import Failure
from kernelpro.judge.correctness import judge_calls
from kernelpro.judge.device_lock import DeviceLock, device_name
from kernelpro.judge.inputs import Bank
from kernelpro.judge.measure import BaselineFailed, Measurement, Stopwatch
from kernelpro.judge.outcomes import describe
from kernelpro.judge.placing import construct, place
from kernelpro.judge.pool import Zygote
from kernelpro.judge.settings import JudgeSettings
from kernelpro.judge.workers import WorkerProcess
from kernelpro.problems.module import essentials
from kernelpro.records import Candidate, Compiled, Problem, Timing
from kernelpro.serial import decode

PROBE_DEADLINE_S = 30.0  # a context takes 0.3 s on a healthy card


class Trial:
    """One bank of secret inputs and the baseline's worker; candidates are loaded and timed here.

    Attributes:
        kind: of the baseline, see `baselines.KINDS`.
        measured: what the last timing showed, in full.
        extensions: how the last candidate's torch extensions were built.
        compiled: what torch.compile made of the reference, of each kind of baseline that ran.
    """

    def __init__(
        self, problem: Problem, zygote: Zygote, settings: JudgeSettings, kind: str = "eager"
    ) -> None:
        """Make the inputs; kind is the baseline's, see `baselines.KINDS`."""
        self.kind = kind
        self.problem = problem
        self.zygote = zygote
        self.settings = settings
        self.bank = Bank(problem, zygote.target.device)
        self.stopwatch = Stopwatch(
            self.bank, settings, zygote.threads, DeviceLock(device_name(zygote.target))
        )
        self.measured: Measurement | None = None
        self.extensions: dict[str, str] = {}
        self.compiled: dict[str, Compiled] = {}
        self._base: WorkerProcess | None = None
        self._scheduling: dict[int, tuple[int, int, frozenset[int]]] = {}

    def close(self) -> None:
        """End the baseline's worker and give the inputs' memory back."""
        if self._base is not None:
            self._base.end()
            self._base = None
        self.bank.close()

    def start(self) -> WorkerProcess:
        """Fork a worker and give it the inputs.

        Raises:
            JudgeError: no worker starts.
        """
        words = ""
        for _ in range(2):
            worker = self.zygote.fork()
            try:
                worker.attach(
                    self.bank.descriptor, self.bank.block_bytes, self.settings.start_deadline_s
                )
            except Failure as failure:
                _, words = describe(failure, worker, "its start")
                worker.end()
                self.zygote.discard()  # one that was made ready may have died meanwhile
            except BaseException:
                worker.end()
                raise
            else:
                return worker
        raise JudgeError(
            f"a fresh worker process does not work: {words}; if the device is well, choose "
            "isolation = 'process' in [judge] of kernelpro.toml to see whether it needs what the "
            "confinement refuses"
        )

    def prove_device(self) -> None:
        """After a fault, see in a fresh process that the device still computes; never reset it.

        Raises:
            JudgeError: two fresh processes cannot use it.
        """
        self.zygote.discard()
        words = ""
        for _ in range(2):
            worker = self.zygote.fork()
            try:
                worker.ready(PROBE_DEADLINE_S)
            except Failure as failure:
                _, words = describe(failure, worker, "a test of the device")
                worker.end()
                continue
            self.zygote.keep(worker)
            return
        raise JudgeError(
            f"the device {self.zygote.target.device} does not work any more since a candidate "
            f"failed on it: {words}; look at it with nvidia-smi (kernelpro never resets a device)"
        )

    def baseline(self) -> WorkerProcess:
        """Return the baseline's worker, started and compared with the reference if need be.

        Raises:
            JudgeError: the reference cannot run in a worker.
        """
        if self._base is not None and self._base.alive:
            return self._base
        self._adopt(self.reference(self.kind))
        assert self._base is not None
        return self._base

    def compete(self, kind: str) -> Timing:
        """Time the reference of another kind against the baseline; the faster is the baseline.

        Raises:
            JudgeError: it cannot run in a worker.
        """
        base, other = self.baseline(), self.reference(kind)
        self.zygote.settle()
        try:
            found = self.stopwatch.compare(base, other, baseline=baselines.in_results(self.kind))
        except (Failure, BaselineFailed) as failure:
            other.end()
            raise JudgeError(f"baseline {kind} fails while it is timed: {failure!r}") from None
        if found.timing.speedup_low > 1.0:
            base.end()
            self.kind = kind
            self._adopt(other)
        else:
            other.end()
        return found.timing

    def reference(self, kind: str) -> WorkerProcess:
        """Start a worker with the reference, compared with what the judge computed.

        Raises:
            JudgeError: the reference cannot run in a worker.
        """
        problem = self.problem
        mode = baselines.KINDS[kind][1]
        worker = self.start()
        try:
            place(
                worker,
                self.bank,
                "load_reference",
                self.settings,
                mode=mode,
                problem=essentials(problem),
            )
            self.make_room()
            few = replace(self.settings, calls_per_set=1)
            if mode is not None:
                few = replace(few, first_call_deadline_s=baselines.COMPILE_DEADLINE_S)
            findings = judge_calls(worker, self.bank, True, few, trusted=True)
        except Failure as failure:
            _, words = describe(failure, worker, "the baseline's first calls")
            worker.end()
            raise JudgeError(f"problem {problem.name}: the reference fails: {words}") from None
        except BaseException:
            worker.end()
            raise
        if not findings.ok:
            worker.end()
            raise JudgeError(
                f"problem {problem.name}: the reference disagrees with itself: {findings.message}"
            )
        if mode is not None and kind not in self.compiled:
            self.compiled[kind] = self._choices(worker, kind)
        return worker

    def _choices(self, worker: WorkerProcess, kind: str) -> Compiled:
        """What torch.compile chose in a worker whose reference was called; never a failure."""
        name = baselines.in_results(kind)
        try:
            told = worker.channel.request("compiled", self.settings.call_deadline_s)
            found = {"kernels": told["kernels"], "note": told["note"]}
            return decode(Compiled, {"baseline": name, **found})
        except (Failure, KeyError, TypeError, ValueError) as error:
            return Compiled(baseline=name, note=f"its process does not tell: {error!r}"[:500])

    def _adopt(self, worker: WorkerProcess) -> None:
        """Make a worker the baseline."""
        self._base = worker
        self._scheduling = processes.scheduling(worker.pid)
        self.zygote.prepare()

    def restart_baseline(self) -> WorkerProcess:
        """Replace a baseline's worker that failed."""
        if self._base is not None:
            self._base.end()
            self._base = None
        return self.baseline()

    def load(self, worker: WorkerProcess, candidate: Candidate) -> bool:
        """Load a candidate; returns whether it has taken the perturbed parameters.

        How its torch extensions were built is in `extensions` then.

        Raises:
            Failure: its worker failed.
        """
        self.extensions = {}
        worker.watch()
        worker.channel.within(self.settings.load_deadline_s)
        same = place(
            worker,
            self.bank,
            "load",
            self.settings,
            path=str(worker.scratch / "candidate.py"),
            source=candidate.source,
            args=self.bank.args,
            kwargs=self.bank.kwargs,
            precision=self.problem.precision,
            light_build=self.settings.light_build,
        )
        worker.channel.within(self.settings.calls_deadline_s)
        if light_build.concerns(candidate.source):
            self.extensions = self._built(worker)
        self.zygote.prepare()
        return same

    def _built(self, worker: WorkerProcess) -> dict[str, str]:
        """Which headers a candidate's extensions were built with, in words."""
        if not self.settings.light_build:
            return {"extensions": "built with torch's own headers"}
        reply = worker.channel.request("built", self.settings.call_deadline_s)
        return light_build.in_words(reply.get("extensions"))

    def make_room(self, worker: WorkerProcess | None = None) -> None:
        """Where calls are large, have workers give back the memory that they keep for later ones.

        Args:
            worker: holds a candidate, of which the same is asked as of the baseline's.

        Raises:
            Failure: the candidate's worker failed.
        """
        if not (self.bank.is_large and self.bank.on_device):
            return
        if self._base is not None and self._base.alive:
            try:
                self._base.channel.request("rest", self.settings.call_deadline_s)
            except Failure:
                self._base.end()  # another takes its place when one is asked for
        if worker is not None:
            worker.channel.request("rest", self.settings.call_deadline_s)

    def put_back(self, worker: WorkerProcess) -> None:
        """Have a candidate that was called at other sizes be what it was, for who looks at it next.

        Raises:
            Failure: its worker failed.
        """
        construct(worker, self.bank, self.settings)

    def time(self, worker: WorkerProcess) -> Measurement:
        """Time a candidate against the baseline, which is restarted once if it fails.

        Raises:
            Failure: the candidate's worker failed.
            JudgeError: the baseline's failed twice.
        """
        name = baselines.in_results(self.kind)
        self.zygote.settle()
        worker.channel.within(self.settings.timing_deadline_s)
        try:
            measured = self.stopwatch.compare(self.baseline(), worker, baseline=name)
        except BaselineFailed:
            base = self.restart_baseline()
            try:
                measured = self.stopwatch.compare(base, worker, baseline=name)
            except BaselineFailed as failed:
                raise JudgeError(
                    f"the baseline's process failed twice while it was timed: {failed.__cause__!r}"
                ) from failed
        worker.channel.within(None)
        self._check_scheduling(measured)
        return measured

    def _check_scheduling(self, measured: Measurement) -> None:
        """Hold it against a candidate when the baseline is scheduled otherwise than before it.

        No filter can keep a process from moving others of its user to other processors, since
        OpenMP moves threads by the same call.
        """
        assert self._base is not None
        now = processes.scheduling(self._base.pid)
        if any(now[thread] != self._scheduling[thread] for thread in now.keys() & self._scheduling):
            measured.inconsistency = "the baseline's threads were moved or slowed down meanwhile"
            self.restart_baseline()
        else:
            self._scheduling = now

    def time_baseline(self) -> Timing:
        """Time the baseline by itself; it is restarted once if it fails.

        Raises:
            JudgeError: it failed twice.
        """
        name = baselines.in_results(self.kind)
        self.zygote.settle()
        try:
            return self.stopwatch.alone(self.baseline(), baseline=name)
        except BaselineFailed:
            base = self.restart_baseline()
        try:
            return self.stopwatch.alone(base, baseline=name)
        except BaselineFailed as failed:
            raise JudgeError(
                f"the baseline's process failed twice while it was timed: {failed.__cause__!r}"
            ) from failed
