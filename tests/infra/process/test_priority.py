import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from siltlog.infra.process.priority import NICE, run_behind_others


@pytest.mark.skipif(sys.platform != "linux", reason="threads have priorities of their own on Linux alone")
def test_only_the_threads_that_ask_for_it_stand_back() -> None:
    def own() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    before = own()
    with ThreadPoolExecutor(1, initializer=run_behind_others) as threads:
        assert threads.submit(own).result() == max(before, NICE)
    assert own() == before
