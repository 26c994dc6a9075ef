"""Where settings come from, and the folders that kernelpro uses.

Order, later wins: defaults in the dataclass, `[SECTION]` of kernelpro.toml in the working folder,
environment variables `KERNELPRO_SECTION_FIELD`, flags of the command line.
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from kernelpro.errors import SettingsError

T = TypeVar("T")

FILE = "kernelpro.toml"


def cache_folder() -> Path:
    """Folder for builds and measured peaks: $KERNELPRO_CACHE, else XDG's cache folder."""
    if folder := os.environ.get("KERNELPRO_CACHE"):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kernelpro"


def config_folder() -> Path:
    """Folder for what the user keeps: $KERNELPRO_CONFIG, else XDG's configuration folder."""
    if folder := os.environ.get("KERNELPRO_CONFIG"):
        return Path(folder)
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "kernelpro"


def data_folder() -> Path:
    """Folder for what searches learned: $KERNELPRO_DATA, else XDG's data folder."""
    if folder := os.environ.get("KERNELPRO_DATA"):
        return Path(folder)
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "kernelpro"


def resolve(
    section: str,
    cls: type[T],
    flags: Mapping[str, Any] | None = None,
    *,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> T:
    """Make a settings dataclass of plain fields from file, environment and flags.

    Args:
        section: table in kernelpro.toml and part of the environment variables' names.
        cls: frozen dataclass whose fields are bool, int, float or str and all have defaults.
        flags: values from the command line; None means not given.
        file: settings file; default kernelpro.toml in the working folder, if there is one.
        environment: default os.environ.

    Raises:
        SettingsError: an unknown field, or a value of the wrong type.
    """
    hints = get_type_hints(cls)
    names = {f.name for f in fields(cls)}  # type: ignore[arg-type]  # T is a dataclass
    values: dict[str, Any] = {}
    path = file or Path(FILE)
    if file is not None and not file.is_file():
        raise SettingsError(f"settings file {file} does not exist or is not a file")
    if path.is_file():
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8")).get(section, {})
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SettingsError(f"{path} is not TOML: {error}") from error
        if not isinstance(table, Mapping):
            raise SettingsError(f"{path}: [{section}] must be a table, but is {table!r}")
        if unknown := sorted(table.keys() - names):
            known = ", ".join(sorted(names))
            raise SettingsError(f"{path}: [{section}] has no {unknown[0]!r}; it has {known}")
        values |= {k: _check(f"{path}: [{section}] {k}", hints[k], v) for k, v in table.items()}
    variables = os.environ if environment is None else environment
    for name in names:
        variable = f"KERNELPRO_{section}_{name}".upper()
        if (text := variables.get(variable)) is not None:
            values[name] = _parse(variable, hints[name], text)
    values |= {k: v for k, v in (flags or {}).items() if v is not None}
    return cls(**values)


def _check(where: str, hint: type, value: Any) -> Any:
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not hint:
        raise SettingsError(f"{where} must be of type {hint.__name__}, but is {value!r}")
    return value


def _parse(where: str, hint: type, text: str) -> Any:
    if hint is bool:
        if text.lower() in ("1", "true", "yes", "on"):
            return True
        if text.lower() in ("0", "false", "no", "off"):
            return False
        raise SettingsError(f"{where} must be true or false, but is {text!r}")
    try:
        return hint(text)
    except ValueError:
        raise SettingsError(f"{where} must be of type {hint.__name__}, but is {text!r}") from None
