"""Settings of models: the table `[models]` of kernelpro.toml."""

from dataclasses import dataclass

from kernelpro.errors import SettingsError

ROLES = ("plan", "code", "debug")
WORKFLOWS = ("roles", "single")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """Which model plays which role, and what each may cost.

    A model is named `anthropic/NAME` or `openai/NAME`; the second also reaches every server that
    speaks OpenAI's protocol. Temperatures are STARK's; a negative one is not sent, and Anthropic's
    protocol has none.

    Attributes:
        workflow: `roles` (plan, then code; debug for a failed parent) or `single` (one call).
        plan: model of the plan role; empty takes the one that `--proposer` names.
        code: likewise; also the model of the single workflow.
        debug: likewise.
        plan_temperature: 0..2.
        code_temperature: likewise.
        debug_temperature: likewise.
        plan_max_tokens: longest answer, in tokens.
        code_max_tokens: likewise.
        debug_max_tokens: likewise.
        plan_prompt_tokens: longest prompt, in estimated tokens.
        code_prompt_tokens: likewise.
        debug_prompt_tokens: likewise.
        max_cost: US dollars that the whole search may spend; 0 is no limit.
        max_tokens: tokens that it may use, in and out together; 0 is no limit.
        tool_rounds: look-ups in a tree of sources (search_code, read_file) that plan and code may
            make before each answer; 0 offers none. They are offered on the CUDA target where
            nvidia-cutlass is installed, and on any where [code_search] root names a tree.
        lookup_characters: characters that one look-up gives, at most.
        prices: a price file besides the packaged one and prices.json in the configuration folder.
        anthropic_url: another server than Anthropic's.
        openai_url: another server than OpenAI's.
        cache_ttl: how long Anthropic keeps the shared part of prompts: `5m` or `1h`.
        retries: further tries of a call that met a busy or broken server.
        retry_first_s: pause before the first of them; doubles each time, plus up to as much again.
        retry_most_s: longest pause; a server that asks for a longer one ends the search.
        idle_s: longest wait for the next byte.
        answer_s: longest time for a whole answer.
        answer_bytes: longest answer on the wire.
    """

    workflow: str = "roles"
    plan: str = ""
    code: str = ""
    debug: str = ""
    plan_temperature: float = 0.8
    code_temperature: float = 0.1
    debug_temperature: float = 0.1
    plan_max_tokens: int = 16_000
    code_max_tokens: int = 16_000
    debug_max_tokens: int = 16_000
    plan_prompt_tokens: int = 24_000
    code_prompt_tokens: int = 24_000
    debug_prompt_tokens: int = 24_000
    max_cost: float = 0.0
    max_tokens: int = 0
    tool_rounds: int = 6
    lookup_characters: int = 12_000
    prices: str = ""
    anthropic_url: str = ""
    openai_url: str = ""
    cache_ttl: str = "5m"
    retries: int = 6
    retry_first_s: float = 0.5
    retry_most_s: float = 60.0
    idle_s: float = 120.0
    answer_s: float = 600.0
    answer_bytes: int = 8 << 20

    def __post_init__(self) -> None:
        if self.workflow not in WORKFLOWS:
            raise SettingsError(
                f"[models] workflow must be one of {', '.join(WORKFLOWS)}, but is {self.workflow!r}"
            )
        if self.cache_ttl not in ("5m", "1h"):
            raise SettingsError(f"[models] cache_ttl must be 5m or 1h, but is {self.cache_ttl!r}")
        for name in (
            "max_cost",
            "max_tokens",
            "retries",
            "retry_first_s",
            "retry_most_s",
            "tool_rounds",
        ):
            if not getattr(self, name) >= 0:
                raise SettingsError(
                    f"[models] {name} must be 0 or more, but is {getattr(self, name)}"
                )
        positive = ["idle_s", "answer_s", "answer_bytes", "lookup_characters"]
        positive += [f"{role}_{what}" for role in ROLES for what in ("max_tokens", "prompt_tokens")]
        for name in positive:
            if not getattr(self, name) > 0:
                raise SettingsError(
                    f"[models] {name} must be above 0, but is {getattr(self, name)}"
                )

    def model(self, role: str, default: str) -> str:
        """Name of the model that plays a role."""
        return str(getattr(self, role)) or default

    def max_answer(self, role: str) -> int:
        """Longest answer of a role, in tokens."""
        return int(getattr(self, f"{role}_max_tokens"))

    def max_prompt(self, role: str) -> int:
        """Longest prompt of a role, in estimated tokens."""
        return int(getattr(self, f"{role}_prompt_tokens"))

    def temperature(self, role: str) -> float | None:
        """Temperature of a role; None is not sent."""
        value = float(getattr(self, f"{role}_temperature"))
        return value if value >= 0 else None
