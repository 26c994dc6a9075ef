"""Providers: each file speaks one protocol through its official package, imported when used."""

from typing import Protocol

from kernelpro.errors import ModelError
from kernelpro.models.exchange import Answer, Request
from kernelpro.models.settings import ModelSettings

COMPANIES = ("anthropic", "openai")


class Provider(Protocol):
    """One model behind one protocol; `ask` may be called from several threads at once.

    Attributes:
        name: the model as the user named it: `anthropic/NAME`.
        priced: whether the price table holds for it: not for a server of the user's own.
    """

    name: str
    priced: bool

    def ask(self, request: Request, /) -> Answer:
        """Ask once.

        Raises:
            ProviderError: the call failed; it says whether another try may help.
        """
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


def split(name: str) -> tuple[str, str]:
    """Company and model of a name such as `anthropic/NAME`.

    Raises:
        ModelError: it is no such name.
    """
    company, slash, model = name.partition("/")
    if company not in COMPANIES or not slash or not model.strip():
        raise ModelError(
            f"a model is named anthropic/NAME or openai/NAME, but found {name!r}; the second also "
            "reaches any server that speaks OpenAI's protocol ([models] openai_url)"
        )
    return company, model


def connect(name: str, settings: ModelSettings) -> Provider:
    """Make ready to ask a model; sends nothing.

    Raises:
        ModelError: the name is not well formed, or package or key is missing.
    """
    company, model = split(name)
    if company == "anthropic":
        from kernelpro.models.providers.anthropic_messages import AnthropicMessages

        return AnthropicMessages(name, model, settings)
    from kernelpro.models.providers.openai_chat import OpenAIChat

    return OpenAIChat(name, model, settings)
