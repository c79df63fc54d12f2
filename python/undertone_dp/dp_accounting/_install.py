"""This package under the name `dp_accounting`."""

import sys

_NAME = "dp_accounting"
_OWN = "undertone_dp.dp_accounting"


def install() -> None:
    """Makes `import dp_accounting` mean this package, until the process ends.

    Programs that import Google's package then calibrate with Undertone, unchanged. Call it before their first import.

    >>> from undertone_dp import dp_accounting
    >>> dp_accounting.install()  # doctest: +SKIP
    """
    present = sys.modules.get(_NAME)
    if present is not None and present is not sys.modules[_OWN]:
        raise RuntimeError(f"{_NAME} is imported already; call install() before anything imports it")
    for name, module in list(sys.modules.items()):
        if name == _OWN or name.startswith(f"{_OWN}."):
            sys.modules[_NAME + name.removeprefix(_OWN)] = module
