"""What a candidate's file says to build its kernels through CUTLASS and to call them.

The file needs torch, nvcc and CUTLASS's headers: those that nvcc is told of already, as it is in a
search, a checkout that CUTLASS_PATH names, or the package nvidia-cutlass. torch's `load_inline`
builds an extension under a name that is the hash of its sources, and finds it again by that. The
extension takes addresses instead of tensors, so that none of torch's headers has to be read.
"""

from kernelpro.language.cuda_cutlass import Sources

IMPORTS = ("import hashlib", "import importlib.util", "import inspect", "import os")

GLUE = '''

def _cutlass_folders():
    """Return the folder of CUTLASS's headers in a list; an empty one where nvcc is told of it."""

    def holds(folder):
        return os.path.isfile(os.path.join(folder, "cutlass", "cutlass.h"))

    roots = [os.environ["CUTLASS_PATH"]] if os.environ.get("CUTLASS_PATH") else []
    told = os.environ.get("NVCC_PREPEND_FLAGS", "").split()
    if not roots and any(flag.startswith("-I") and holds(flag[2:]) for flag in told):
        return []
    package = importlib.util.find_spec("cutlass_library")
    places = (package.submodule_search_locations or ()) if package is not None else ()
    roots += [os.path.join(place, "source") for place in places]
    for folder in (os.path.join(root, "include") for root in roots):
        if holds(folder):
            return [folder]
    raise ImportError(
        "these kernels are compiled with CUTLASS's headers, but none were found in "
        f"{', '.join(roots) or 'the package nvidia-cutlass, which is not installed'}; "
        "pip install nvidia-cutlass, or set CUTLASS_PATH to a checkout of CUTLASS"
    )


def _build():
    """Compile the kernels for this GPU, or find them as they were compiled before."""
    folders = _cutlass_folders()
    # Where torch cannot leave out its own headers it reads them too, which takes minutes.
    lean = "no_implicit_headers" in inspect.signature(load_inline).parameters
    words = "\\0".join([CUTLASS_SOURCE, CUTLASS_BINDING, *CUTLASS_FLAGS, *folders])
    return load_inline(
        name="cutlass_" + hashlib.sha256(words.encode()).hexdigest()[:16],
        cpp_sources=[CUTLASS_BINDING],
        cuda_sources=[CUTLASS_SOURCE],
        extra_cflags=["-O2"],
        extra_cuda_cflags=list(CUTLASS_FLAGS),
        extra_include_paths=folders,
        **({"no_implicit_headers": True} if lean else {}),
    )


_cutlass = _build()
'''

WORKSPACE_GLUE = '''

@functools.lru_cache(maxsize=64)
def _workspace(name, device):
    """Return the bytes that a kernel needs for parts of tiles; device is the current one."""
    return getattr(_cutlass, f"{name}_workspace")()
'''

STREAM_GLUE = '''

def _stream(tensor):
    """Return the handle of torch's current stream; tensor must be on the current device."""
    if tensor.get_device() != torch.cuda.current_device():
        raise ValueError(
            f"the inputs are on cuda:{tensor.get_device()}, but the current device is "
            f"cuda:{torch.cuda.current_device()}; use torch.cuda.device"
        )
    return torch.cuda.current_stream().cuda_stream
'''


def literals(sources: Sources) -> str:
    """Return the sources as constants of the candidate's file."""
    return (
        f'\n\nCUTLASS_SOURCE = r"""\n{sources.cuda}"""\n\n'
        f'CUTLASS_BINDING = r"""\n{sources.binding}"""\n\n'
        f"CUTLASS_FLAGS = {sources.flags!r}\n"
    )
