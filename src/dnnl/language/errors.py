"""What ends a run of ``dnnl bench``, each with benchdnn's exit status."""

from __future__ import annotations

from dnnl.errors import Error


class BadValue(Error):
    """An option, a batch file or a problem whose text cannot be read."""

    status = 1


class UnknownOption(BadValue):
    """An option that the driver does not have, no driver, or a tag that does not exist."""

    status = 2
