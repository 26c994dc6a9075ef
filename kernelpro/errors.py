"""Errors that kernelpro raises on purpose; the command line prints them in one line, status 2.

A candidate that fails is not an error: it is an `Evaluation` with an `Outcome`.
"""


class KernelproError(Exception):
    """Base class: the message says what was expected, what was found and what to do about it."""


class MissingMetric(KernelproError, KeyError):
    """A detector read a metric that was not collected."""

    def __str__(self) -> str:
        return str(self.args[0])


class MemoryFormatError(KernelproError):
    """A search memory file is not one that this version can read."""


class MemoryInUse(MemoryFormatError):
    """Another process is writing the search memory file."""


class AgentError(KernelproError):
    """An outside agent asked for, or answered, what there is not."""


class ProblemError(KernelproError):
    """A problem could not be found, or its file is not well formed."""


class TargetError(KernelproError):
    """A target cannot be used on this machine: a device, a compiler or a package is missing."""


class JudgeError(KernelproError):
    """The judge itself cannot work: no worker starts, or the reference fails."""


class PluginError(KernelproError):
    """A plugin cannot be loaded, or answered with something that its hook does not allow."""


class ProposalError(KernelproError):
    """No plugin proposed a candidate."""


class ModelError(KernelproError):
    """A model cannot be asked: no key, no package, no money left, or its server refuses."""


class SettingsError(KernelproError):
    """A setting has a value that it cannot have."""


class LessonsError(KernelproError):
    """A lessons file cannot be used: it is none, is damaged, or is of a newer version."""


class CodeSearchError(KernelproError):
    """A tree of sources cannot be searched, or has no such file."""
