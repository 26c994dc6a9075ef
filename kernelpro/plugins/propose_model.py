"""The proposer that asks models, or replays a tape of them; `search --proposer` registers it.

A failed talk becomes a candidate that this plugin itself refuses, with the reason.
"""

from kernelpro import Candidate, Proposal, hookimpl
from kernelpro.models.workflow import Team


class ModelProposer:
    """A plugin with a team of models behind it; its hooks may be called from several threads."""

    def __init__(self, team: Team) -> None:
        self.team = team
        self._refused: dict[str, str] = {}

    @hookimpl
    def propose(self, proposal: Proposal) -> Candidate | None:
        """Let the team make the next candidate."""
        made = self.team.propose(proposal)
        if made is None:
            return None
        if made.refused:
            self._refused[made.candidate.id] = made.refused
        return made.candidate

    @hookimpl
    def reject(self, candidate: Candidate) -> str | None:
        """Refuse what came of a talk that failed."""
        return self._refused.get(candidate.id)
