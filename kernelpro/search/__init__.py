"""The tree search: choose, ask, judge, remember. Knows no GPU, no model and no plugin by name.

The public function `kernelpro.search` has this package's name, so the package can be called: that
is `kernelpro.api.search`, whichever of the two was imported first.
"""

import importlib
import sys
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Do what `kernelpro.api.search` does."""
        return importlib.import_module("kernelpro.api").search(*arguments, **options)


sys.modules[__name__].__class__ = _CallablePackage
