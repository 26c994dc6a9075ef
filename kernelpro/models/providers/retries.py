"""Try again what a busy or broken server left unanswered, with growing, jittered pauses."""

import random
import time
from collections.abc import Callable

from kernelpro.models.exchange import Answer, Request
from kernelpro.models.providers import Provider
from kernelpro.models.providers.failures import ProviderError
from kernelpro.models.settings import ModelSettings


def ask(
    provider: Provider,
    request: Request,
    settings: ModelSettings,
    failed: Callable[[ProviderError], None],
) -> Answer:
    """Ask until there is an answer.

    Args:
        provider: whom.
        request: what.
        settings: how often and how long apart.
        failed: told of each failed call before the next one, for what it used up; what it raises
            ends the tries.

    Raises:
        ProviderError: the last failure, with the number of tries.
    """
    for attempt in range(settings.retries + 1):
        try:
            return provider.ask(request)
        except ProviderError as error:
            failed(error)
            if error.wait_s > settings.retry_most_s:
                raise ProviderError(
                    f"{error}; it asks to wait {error.wait_s:.0f} s, which is longer than "
                    f"[models] retry_most_s = {settings.retry_most_s:g}",
                    again=False,
                ) from error
            if not error.again or attempt == settings.retries:
                times = f" ({attempt + 1} tries)" if attempt else ""
                raise ProviderError(f"{error}{times}", again=False) from error
            # Jitter from the system, not from the search's seed: it changes no answer, and two
            # searches of one seed must not knock at the same moment.
            pause = settings.retry_first_s * 2.0**attempt * random.SystemRandom().uniform(1.0, 2.0)
            time.sleep(max(error.wait_s, min(pause, settings.retry_most_s)))
    raise AssertionError("not reached")
