"""Build a plugin manager: built-in plugins first, then those that installed packages advertise."""

import importlib
from collections.abc import Iterable
from importlib import metadata

import pluggy

from kernelpro import hookspecs
from kernelpro.errors import PluginError

ENTRY_POINT_GROUP = "kernelpro"

# Later ones are called first (pluggy's order); a proposer of the user's comes before the built-in.
BUILTIN_PLUGINS = (
    "kernelpro.plugins.reward_speedup",
    "kernelpro.plugins.reject_static",
    "kernelpro.plugins.propose_language",
    "kernelpro.plugins.collect_energy",
    "kernelpro.plugins.collect_cpu",
    "kernelpro.plugins.collect_counters",
    "kernelpro.plugins.collect_sass",
    "kernelpro.plugins.collect_timeline",  # asked first: its names of kernels hold for the others
    "kernelpro.plugins.detect_memory",
    "kernelpro.plugins.detect_sass_registers",
    "kernelpro.plugins.detect_sass_memory",
    "kernelpro.plugins.detect_sass_shared",
    "kernelpro.plugins.detect_sass_pipeline",
    "kernelpro.plugins.detect_sass_datapath",
    "kernelpro.plugins.detect_sass_arithmetic",
    "kernelpro.plugins.detect_sass_control",
    "kernelpro.plugins.detect_sass_build",
    "kernelpro.plugins.detect_coalescing",
    "kernelpro.plugins.detect_caches",
    "kernelpro.plugins.detect_shared_memory",
    "kernelpro.plugins.detect_occupancy",
    "kernelpro.plugins.detect_grid",
    "kernelpro.plugins.detect_launches",
    "kernelpro.plugins.detect_launch_records",
    "kernelpro.plugins.detect_host",
    "kernelpro.plugins.detect_transfers",
    "kernelpro.plugins.detect_operators",
    "kernelpro.plugins.detect_stalls",
    "kernelpro.plugins.detect_divergence",
    "kernelpro.plugins.detect_pipes",
    "kernelpro.plugins.detect_arithmetic",
    "kernelpro.plugins.detect_tensor_cores",
    "kernelpro.plugins.detect_atomics",
    "kernelpro.plugins.detect_front_end",
    "kernelpro.plugins.detect_async_copy",
    "kernelpro.plugins.detect_cpu_kernel",
    "kernelpro.plugins.detect_cpu_vectors",
    "kernelpro.plugins.detect_cpu_arithmetic",
    "kernelpro.plugins.detect_cpu_accesses",
    "kernelpro.plugins.detect_cpu_threads",
    "kernelpro.plugins.detect_cpu_system",
    "kernelpro.plugins.detect_energy",
)


def create_plugin_manager(
    *, block: Iterable[str] = (), builtins: bool = True, entry_points: bool = True
) -> tuple[pluggy.PluginManager, list[str]]:
    """Make a new manager with every plugin registered, but for those whose name is blocked.

    There is no global manager. A plugin of another package that cannot be loaded is left out.

    Returns:
        The manager, and one sentence for each plugin that could not be loaded.

    Raises:
        PluginError: a blocked name that no plugin has.
    """
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    blocked = set(block)
    names: set[str] = set()
    complaints = []
    if builtins:
        for module in BUILTIN_PLUGINS:
            names.add(name := module.rpartition(".")[2])
            if name not in blocked:
                manager.register(importlib.import_module(module), name=name)
    if entry_points:
        for point in metadata.entry_points(group=ENTRY_POINT_GROUP):
            names.add(point.name)
            if point.name not in blocked and (complaint := _load(manager, point)):
                complaints.append(complaint)
    if unknown := sorted(blocked - names):
        raise PluginError(
            f"no plugin is called {unknown[0]!r}; there are {', '.join(sorted(names))}"
        )
    return manager, complaints


def _load(manager: pluggy.PluginManager, point: metadata.EntryPoint) -> str | None:
    """Register what an entry point names; return a sentence when that fails."""
    dist = f"{point.dist.name} {point.dist.version}" if point.dist else "an unknown package"
    try:
        plugin = point.load()
        manager.register(plugin, name=point.name)
        for caller in manager.get_hookcallers(plugin) or ():
            manager._verify_hook(
                caller, next(i for i in caller.get_hookimpls() if i.plugin is plugin)
            )
        if unknown := [
            impl.function.__name__
            for hook in vars(manager.hook).values()
            if not hook.has_spec()
            for impl in hook.get_hookimpls()
            if impl.plugin is plugin and not impl.optionalhook
        ]:
            manager.unregister(plugin)
            return (
                f"plugin {point.name!r} of {dist} implements {unknown[0]!r}, which is no hook of "
                "kernelpro; it is left out (docs/plugin_hooks.md lists the hooks)"
            )
    except Exception as error:  # a stranger's code may raise anything; it must not stop the user
        if manager.has_plugin(point.name):
            manager.unregister(name=point.name)
        return (
            f"plugin {point.name!r} of {dist} could not be loaded and is left out: "
            f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"
        )
    return None


def origin(manager: pluggy.PluginManager, name: str) -> str:
    """Where a registered plugin comes from: `kernelpro`, or its distribution and version."""
    plugin = manager.get_plugin(name)
    module = getattr(plugin, "__name__", type(plugin).__module__)
    if module.startswith("kernelpro.plugins."):
        return "kernelpro"
    for point in metadata.entry_points(group=ENTRY_POINT_GROUP):
        if point.name == name and point.dist:
            return f"{point.dist.name} {point.dist.version}"
    return "registered by the caller"
