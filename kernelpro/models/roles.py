"""The roles' forms and prompt templates.

A template is a plain text file of the package; one of the same name in the folder `prompts` of the
user's configuration folder takes its place. A line with `{{part}}` alone is where a part goes; a
line with `---` alone parts what siblings have in common from what is this child's own.
"""

import re
from pathlib import Path

from kernelpro.errors import SettingsError
from kernelpro.models.exchange import Tool
from kernelpro.settings import config_folder

FOLDER = Path(__file__).parent / "templates"

_SOURCE = {"type": "string", "description": "The whole text of the Python file."}

PLAN = Tool(
    name="plan_change",
    description="Mark the one place to change next and say what to do there.",
    schema={
        "type": "object",
        "properties": {
            "source": {
                "type": "string",
                "description": "The source, unchanged but for the two anchors and your advice as "
                "comments between them.",
            },
            "advice": {"type": "string", "description": "What to do there, and why: one change."},
            "title": {"type": "string", "description": "The same in at most twelve words."},
            "finding": {
                "type": "string",
                "description": "Name of the finding that it acts on, or empty.",
            },
            "may_also_change": {
                "type": "array",
                "items": {"type": "string"},
                "description": "At most three: `includes`, or names of functions that must change "
                "too, such as the one that launches the kernel.",
            },
        },
        "required": ["source", "advice", "title"],
    },
)
CODE = Tool(
    name="write_kernel",
    description="Give the changed file.",
    schema={
        "type": "object",
        "properties": {
            "source": _SOURCE,
            "note": {"type": "string", "description": "What was done, in one sentence."},
        },
        "required": ["source"],
    },
)
DEBUG = Tool(
    name="repair_kernel",
    description="Give the repaired file.",
    schema={
        "type": "object",
        "properties": {
            "source": _SOURCE,
            "cause": {"type": "string", "description": "What was wrong, in one sentence."},
        },
        "required": ["source", "cause"],
    },
)
TOOLS = (PLAN, CODE, DEBUG)
FORM = {"plan": PLAN, "code": CODE, "debug": DEBUG, "single": CODE}

_PLACE = re.compile(r"^\{\{(\w+)\}\}$")


def template(name: str) -> str:
    """The text of a template, the user's before the packaged one.

    Args:
        name: file name without folder, such as `plan.txt` or `rules.cpu.txt`.

    Raises:
        SettingsError: the user's file cannot be read.
    """
    own = config_folder() / "prompts" / name
    path = own if own.is_file() else FOLDER / name
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"prompt template {path} must be a UTF-8 text file: {error}") from None


def places(name: str, known: frozenset[str]) -> list[tuple[str, bool]]:
    """A template as lines of text and names of parts, in order.

    Returns:
        Pairs of a text and whether it is the name of a part.

    Raises:
        SettingsError: it names a part that there is not.
    """
    found = []
    for line in template(name).splitlines():
        match = _PLACE.match(line.strip())
        if match is None:
            found.append((line, False))
        elif match[1] not in known:
            raise SettingsError(
                f"prompt template {name} names a part {match[1]!r}; there are "
                f"{', '.join(sorted(known))}"
            )
        else:
            found.append((match[1], True))
    return found
