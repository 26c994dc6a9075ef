"""The same for agents that speak the Model Context Protocol: tools over standard input or HTTP.

What takes longer than a call may (`tell`, `best` with confirm, `profile` with deep) begins a job
and answers at once; `job` waits a little, reports progress, and answers with how it stands. An
answer's job has its task's id, so that it can be asked for after a restart too.
"""

import functools
import secrets
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, Literal, ParamSpec, TypeVar

import anyio
import anyio.to_thread
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import Field

from kernelpro import __version__, runs
from kernelpro.agents import choosing, task, verdict, views
from kernelpro.agents.driven import Driven
from kernelpro.agents.jobs import Job, Jobs, Stage
from kernelpro.code_search import answers
from kernelpro.code_search.library import Library
from kernelpro.code_search.settings import CodeSearchSettings
from kernelpro.errors import AgentError, KernelproError
from kernelpro.search.brief import Feedback
from kernelpro.search.tree import Tree
from kernelpro.settings import resolve

LOOPBACK = "127.0.0.1"
NODES = 200
"""Steps that the tool tree tells of unless it is asked for more. Own choice."""
INSTRUCTIONS = """\
You make a PyTorch module faster. Call ask for a task, write the whole candidate file, and tell it \
by the task's id; then call job with that id until its state is done. The result says whether the \
judge accepted it, how fast it is, why not, and what the profiler saw. Ask again: the search \
chooses what to go on from. tree and best show how it stands; search_code and read_file look into \
a source tree of CUDA C++ where one is set."""

P = ParamSpec("P")
R = TypeVar("R")
Step = Annotated[int | None, Field(description="Number of a step; default: the best so far.")]


def server(search: Driven, jobs: Jobs) -> MCPServer:
    """The server of one search, not running yet.

    Args:
        search: what is driven.
        jobs: where its long work goes.
    """
    made = MCPServer(
        "kernelpro", version=__version__, instructions=INSTRUCTIONS, log_level="WARNING"
    )
    read: list[str] = []  # files that were read since the last answer
    _add_search(made, search, jobs, read)
    _add_views(made, search, jobs)
    _add_code_search(made, read)
    return made


def run_stdio(path: Path) -> None:
    """Serve on standard input and output until the client closes them.

    Raises:
        KernelproError: there is no such search.
    """
    runs.read(path)
    with Driven(path) as search, Jobs() as jobs:
        anyio.run(server(search, jobs).run_stdio_async)


def run_http(path: Path, port: int, announce: Callable[[str], None]) -> None:
    """Serve over HTTP on loopback until interrupted.

    Args:
        path: the memory file.
        port: 0 takes a free one.
        announce: told the address; the token in it is new each time, and nothing else answers.

    Raises:
        KernelproError: there is no such search, or the port is taken.
    """
    import uvicorn

    runs.read(path)
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((LOOPBACK, port))
        except OSError as error:
            raise KernelproError(
                f"cannot listen on {LOOPBACK}:{port}: {error.strerror}; give another --port"
            ) from error
        place = f"{LOOPBACK}:{listening.getsockname()[1]}"
        where = f"/{secrets.token_urlsafe(24)}/mcp"
        with Driven(path) as search, Jobs() as jobs:
            app = server(search, jobs).streamable_http_app(
                streamable_http_path=where,
                transport_security=TransportSecuritySettings(
                    allowed_hosts=[place, place.replace(LOOPBACK, "localhost")],
                    allowed_origins=[f"http://{place}"],
                ),
            )
            config = uvicorn.Config(app, log_level="warning", access_log=False, ws="none")
            announce(f"http://{place}{where}")
            uvicorn.Server(config).run(sockets=[listening])


def _add_search(made: MCPServer, search: Driven, jobs: Jobs, read: list[str]) -> None:
    """Add what the tree grows by: ask, tell, job."""

    @made.tool()
    @_said
    async def ask(
        format: Annotated[
            Literal["markdown", "json"],
            Field(description="One text to read, or the same as fields."),
        ] = "markdown",
    ) -> dict[str, Any]:
        """Get the next task: problem, parent, other candidates, findings, anchors, and an id."""
        given = await _aside(search.ask)
        if format == "json":
            return task.values(given)
        return {"id": given.ask.id, "node": given.ask.node, "task": task.markdown(given)}

    @made.tool()
    @_said
    async def tell(
        id: Annotated[str, Field(description="The task's id, from ask.")],
        source: Annotated[str, Field(description="The whole Python file with class ModelNew.")],
        note: Annotated[str, Field(description="What was changed, in a line.")] = "",
        finding: Annotated[str, Field(description="Finding that it acts on, or empty.")] = "",
        author: Annotated[str, Field(description="Who wrote it.")] = "agent",
    ) -> dict[str, Any]:
        """Hand in the answer to a task; returns a job at once, whose id is the task's."""
        await _aside(search.require, id)
        seen = tuple(read)

        def work(stage: Stage) -> dict[str, Any]:
            step = search.tell(
                id, source, note=note, finding=finding, author=author, read=seen, stage=stage
            )
            return _told(search.path, step.index)

        begun = jobs.begin(id, "tell", work)
        read.clear()
        return begun.values()

    @made.tool()
    @_said
    async def drop(
        id: Annotated[str, Field(description="The task's id, from ask.")],
    ) -> dict[str, Any]:
        """Give a task up, so that another one can be asked for."""
        await _aside(search.drop, id)
        return {"id": id, "state": "dropped"}

    @made.tool()
    @_said
    async def job(
        id: Annotated[str, Field(description="The job's id: of an answer the task's.")],
        context: Context,
        wait_s: Annotated[
            float, Field(description="Wait so many seconds for its end.", ge=0)
        ] = search.settings.poll_s,
    ) -> dict[str, Any]:
        """See how a job stands; waits a little, with progress, and answers when it is over."""
        left = min(wait_s, search.settings.poll_s)
        try:
            found = jobs.get(id)
        except AgentError:
            return await _aside(_earlier, search, id)
        while not found.over and left > 0:
            pause = min(left, search.settings.heartbeat_s)
            left -= pause
            await context.report_progress(found.seconds, message=found.stage)
            found = await _aside(jobs.wait, id, found.stage, pause)
        return found.values()


def _add_views(made: MCPServer, search: Driven, jobs: Jobs) -> None:
    """Add what shows how the search stands: tree, best, diagnose, profile."""

    @made.tool()
    @_said
    async def tree(
        most: Annotated[int, Field(description="So many steps, the newest.", ge=1)] = NODES,
    ) -> dict[str, Any]:
        """Show every step: what was tried from which, and what it gave."""
        return await _aside(views.tree, search.path, most)

    @made.tool()
    @_said
    async def best(
        confirm: Annotated[
            bool, Field(description="Judge it again from scratch; begins a job.")
        ] = False,
    ) -> dict[str, Any]:
        """Get the fastest accepted candidate with its source."""
        if not confirm:
            return await _looked(search, views.best)

        def work(stage: Stage) -> dict[str, Any]:
            winner, confirmations = search.confirm(stage)
            search.looked_at(winner.index if winner is not None else None)
            return views.of_winner(runs.read(search.path)[0], winner, confirmations)

        return jobs.begin("confirm", "confirm", work).values()

    @made.tool()
    @_said
    async def diagnose(step: Step = None) -> dict[str, Any]:
        """Get what the detectors said of a step: bottleneck, why, gain, where, what to do."""
        return await _looked(search, views.diagnose, step)

    @made.tool()
    @_said
    async def profile(
        step: Step = None,
        deep: Annotated[
            bool, Field(description="Measure again, with what takes seconds; begins a job.")
        ] = False,
    ) -> dict[str, Any]:
        """Get the metrics of a step and its place on the roofline."""
        kept = await _looked(search, views.profile, step)
        if not deep:
            return kept

        def work(stage: Stage) -> dict[str, Any]:
            measured = search.measure(kept["step"], deep=True, stage=stage)
            return {
                "step": kept["step"],
                "outcome": str(measured.evaluation.outcome),
                "message": measured.evaluation.message,
                **views.diagnoses(measured.diagnoses),
                **views.metrics(measured.profile),
            }

        return jobs.begin(f"profile-{kept['step']}", "profile", work).values()


def _add_code_search(made: MCPServer, read: list[str]) -> None:
    """Add what looks into a tree of CUDA C++ sources: search_code, read_file."""

    @functools.cache
    def library() -> Library:
        return Library(resolve("code_search", CodeSearchSettings))

    @made.tool()
    @_said
    async def search_code(
        query: Annotated[str, Field(description="Names and words, such as make_tiled_copy.")],
        most: Annotated[int | None, Field(description="Results, at most.", ge=1)] = None,
    ) -> dict[str, Any]:
        """Find places in CUTLASS and CuTe, or the tree that is set: by symbol and text."""
        tree = library()
        return answers.hits(tree, await _aside(tree.search, query, most))

    @made.tool()
    @_said
    async def read_file(
        path: Annotated[str, Field(description="Inside the tree, as search_code gives it.")],
        first: Annotated[int, Field(description="Line to begin with.", ge=1)] = 1,
        last: Annotated[int | None, Field(description="Line to end with.", ge=1)] = None,
    ) -> dict[str, Any]:
        """Read lines of a file of that tree."""
        excerpt = await _aside(library().read, path, first, last)
        read.append(excerpt.path)
        return answers.excerpt(excerpt)


def _told(path: Path, index: int) -> dict[str, Any]:
    """What became of the answer that is this step."""
    found = runs.read(path)[0]
    best = Tree(found.steps).best()
    return verdict.values(
        found.steps[index],
        best.step if best else None,
        findings=choosing.feedback(found.header) is Feedback.FINDINGS,
    )


async def _looked(
    search: Driven, view: Callable[..., dict[str, Any]], *step: Any
) -> dict[str, Any]:
    """A view of one step's profile, once it is noted that it was looked at."""
    shown = await _aside(view, search.path, *step)
    await _aside(search.looked_at, shown["step"])
    return shown


def _earlier(search: Driven, name: str) -> dict[str, Any]:
    """An answer that was told to another process, or a task that is open."""
    step = search.answered_by(name)
    if step is None:
        return {"job": name, "kind": "tell", "state": "open", "result": {}, "error": ""}
    result = _told(search.path, step.index)
    return Job(id=name, kind="tell", stage="done", seconds=0.0, result=result).values()


async def _aside(function: Callable[..., R], *arguments: Any) -> R:
    """Call what reads files in a thread, so that the server answers meanwhile."""
    return await anyio.to_thread.run_sync(functools.partial(function, *arguments))


def _said(tool: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
    """Give an error that is meant for people to the client as its sentence."""

    @functools.wraps(tool)
    async def called(*arguments: P.args, **named: P.kwargs) -> R:
        try:
            return await tool(*arguments, **named)
        except KernelproError as error:
            raise ToolError(str(error)) from error

    return called
