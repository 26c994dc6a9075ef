"""Read a filled-in form, whatever way the model wrote it."""

import json
import re
from collections.abc import Mapping
from typing import Any

from kernelpro.models.keys import redact

TEXT_CHARACTERS = 4000
"""So much of an answer that is no form is kept."""

_FENCE = re.compile(r"^```[\w+-]*\n(.*?)^```", re.DOTALL | re.MULTILINE)


def read_form(form: str, text: str, tool: str) -> tuple[Mapping[str, Any] | None, str]:
    """The form's fields, or None, and what was said beside it.

    A server that knows no tool calls answers in text: then the text itself may be the JSON object,
    or hold it in a fence; for a form with a `source` a single fence of code is that source.
    """
    form, text = redact(form), redact(text)
    if form:
        fields = _object(form)
        return fields, (text if fields is not None else form)[:TEXT_CHARACTERS]
    fences = _FENCE.findall(text)
    for candidate in (text, *fences):
        if (fields := _object(candidate)) is not None:
            return fields, ""
    if len(fences) == 1 and tool != "plan_change":
        return {"source": fences[0]}, text[:TEXT_CHARACTERS]
    return None, text[:TEXT_CHARACTERS]


def _object(text: str) -> Mapping[str, Any] | None:
    try:
        value = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
