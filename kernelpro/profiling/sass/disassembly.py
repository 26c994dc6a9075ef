"""From files to machine code: cubins, shared objects and listings to functions, with resources.

One nvdisasm process gives encodings and live registers; a second one runs beside it only where
there are source lines, which nvdisasm does not print together with live registers. Spills come
from the cubin's own records, so that no third view is needed and any version of nvdisasm will do.
"""

import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from kernelpro.profiling.sass import cubin, listing, tools
from kernelpro.profiling.sass.cubin import Cubin, Resources
from kernelpro.profiling.sass.errors import SassError
from kernelpro.profiling.sass.listing import Function

LIMIT_BYTES = 512 << 20  # a larger file is no candidate's
KERNEL_LIMIT = 256

LISTINGS = (".sass", ".txt", ".asm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Disassembled:
    """One kernel's code, and what its cubin says about it (None for a listing alone)."""

    function: Function
    resources: Resources | None = None
    build: Cubin | None = None


def of_file(path: Path) -> tuple[Disassembled, ...]:
    """Read the kernels of a cubin, of a file that holds cubins, or of a listing.

    Raises:
        SassError: it cannot be read, holds no machine code, or a tool is missing.
    """
    content = _content(path)
    if path.suffix in LISTINGS or _looks_like_text(content):
        return tuple(
            Disassembled(function=f)
            for f in listing.parse(content.decode(errors="replace"), path.name)
            if f.entry
        )
    try:
        return of_cubins(cubins(path, content))
    except SassError as error:
        raise SassError(f"{path.name}: {error}") from None


def of_files(paths: Iterable[Path]) -> tuple[tuple[Disassembled, ...], list[str]]:
    """Read the kernels of several binaries side by side.

    Returns:
        The kernels, and one sentence for each file that gave none.
    """
    contents, complaints = [], []
    for path in paths:
        try:
            contents += cubins(path, _content(path))
        except SassError as error:
            complaints.append(f"{path.name}: {error}")
    kernels: list[Disassembled] = []
    try:
        kernels += of_cubins(dict.fromkeys(contents))
    except SassError as error:
        complaints.append(str(error))
    return tuple(kernels), complaints


def of_cubins(contents: Iterable[bytes]) -> tuple[Disassembled, ...]:
    """Disassemble cubins side by side; a kernel that is in several of them is given once."""
    found: dict[str, Disassembled] = {}
    with ThreadPoolExecutor(max_workers=8) as pool:
        for kernels in pool.map(_of_cubin, contents):
            for kernel in kernels:
                found.setdefault(kernel.function.name, kernel)
    return tuple(found.values())[:KERNEL_LIMIT]


def cubins(path: Path, content: bytes) -> list[bytes]:
    """The cubins with code that a file holds.

    Raises:
        SassError: there is none.
    """
    if cubin.is_cubin(content):
        return [content]
    found = [image for image in cubin.images(content) if b".text." in image]
    if not found and b"\x50\xed\x55\xba" in content:  # a fat binary whose parts are compressed
        found = _extracted(path)
    if not found:
        raise SassError(
            "no GPU machine code was found in it; expected a cubin, a shared object with GPU code "
            "or a listing (code for another GPU, or PTX alone, is compiled when it is loaded)"
        )
    return found


def _content(path: Path) -> bytes:
    try:
        size = path.stat().st_size
        if size > LIMIT_BYTES:
            raise SassError(
                f"{path.name} has {size >> 20} MB; expected a kernel's binary or listing of "
                f"{LIMIT_BYTES >> 20} MB at most"
            )
        content = path.read_bytes()
    except OSError as error:
        raise SassError(f"{path} cannot be read: {error.strerror}") from error
    if not content:
        raise SassError(f"{path.name} is empty (0 bytes); build or disassemble it again")
    return content


def _looks_like_text(content: bytes) -> bool:
    return b"\0" not in content[:4096] and b"/*0000*/" in content


def _of_cubin(content: bytes) -> tuple[Disassembled, ...]:
    build = cubin.read(content)
    if not build.kernels:
        raise SassError("the cubin holds no code; build it again")
    with tempfile.TemporaryDirectory(prefix="kernelpro-") as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(content)
        views = [["-c", "-hex", "-plr", "-lrm", "count"]]
        if build.has_lines:
            views.append(["-c", "-hex", "-g"])
        texts = _printed(path, views)
    live, *lined = [listing.parse(text, "the cubin's disassembly") for text in texts]
    by_name = {f.name: f for f in live}
    functions = (
        [listing.joined(f, by_name[f.name]) if f.name in by_name else f for f in lined[0]]
        if lined
        else live
    )
    return tuple(
        Disassembled(
            function=_marked(f, build.kernels.get(f.name)),
            resources=build.kernels.get(f.name),
            build=build,
        )
        for f in functions
        if f.entry
    )


def _printed(path: Path, views: Sequence[Sequence[str]]) -> list[str]:
    """What nvdisasm prints of a cubin in each of the views.

    The newest one refuses some cubins that an older assembler wrote, such as Triton's own, which
    brings a disassembler of its age; so the others are tried as well.

    Raises:
        SassError: none can read it; says what the newest said.
    """
    first: SassError | None = None
    for tool in tools.every("nvdisasm"):
        try:
            with ThreadPoolExecutor(max_workers=2) as pool:
                return list(
                    pool.map(lambda view, tool=tool: tools.run(tool, [*view, str(path)]), views)
                )
        except SassError as error:
            first = first or error
    raise first or SassError("nvdisasm was not found")


def _marked(function: Function, resources: Resources | None) -> Function:
    """The function with the spills that the cubin's records name."""
    if resources is None or not resources.spills:
        return function
    return replace(
        function,
        instructions=tuple(
            replace(i, spill=True) if i.address in resources.spills else i
            for i in function.instructions
        ),
    )


def _extracted(path: Path) -> list[bytes]:
    """Let cuobjdump unpack the cubins of a file."""
    tool = tools.find("cuobjdump")
    with tempfile.TemporaryDirectory(prefix="kernelpro-") as folder:
        tools.run(tool, ["-xelf", "all", str(path.resolve())], folder=Path(folder))
        contents = [found.read_bytes() for found in sorted(Path(folder).glob("*.cubin"))]
    return [content for content in contents if b".text." in content]
