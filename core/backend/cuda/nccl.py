"""Sums between cards of one computer by NCCL. Not measured: no test has two cards."""

from __future__ import annotations

import os
from pathlib import Path

from torch import distributed


def nccl_group(meeting: Path, rank: int, size: int) -> distributed.ProcessGroup:
    """Joins the ranks that meet in the file `meeting`; a rank's card is that of the tensors it brings. The
    others are found over the loopback, and nobody outside this computer can be one.
    """
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    store = distributed.PrefixStore("sums", distributed.FileStore(str(meeting), size))
    return distributed.ProcessGroupNCCL(store, rank, size, distributed.ProcessGroupNCCL.Options())
