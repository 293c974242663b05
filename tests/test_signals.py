import asyncio
import os
import signal
import subprocess
import sys
import threading

import pytest

from opentinker.signals import StopRequest


@pytest.fixture(params=[signal.SIGINT, signal.SIGTERM])
def signum(request):
    before = signal.getsignal(request.param)
    yield request.param
    signal.signal(request.param, before)


def test_the_first_signal_is_remembered_and_the_work_goes_on(signum):
    calls = []
    signal.signal(signum, lambda *_: calls.append("before"))
    with StopRequest() as stop:
        assert stop.signum == 0
        os.kill(os.getpid(), signum)
        assert stop.signum == signum
        assert calls == []
    os.kill(os.getpid(), signum)  # afterwards everything is as it was
    assert calls == ["before"]


def test_the_second_signal_does_what_it_did_before(signum):
    calls = []
    signal.signal(signum, lambda *_: calls.append("before"))
    with StopRequest() as stop:
        os.kill(os.getpid(), signum)
        os.kill(os.getpid(), signum)
        assert calls == ["before"]
        assert stop.signum == signum


def test_an_error_inside_gives_the_handlers_back(signum):
    handler = signal.getsignal(signum)
    with pytest.raises(KeyError), StopRequest():
        raise KeyError
    assert signal.getsignal(signum) is handler


def test_a_second_signal_of_another_kind_ends_the_process():
    code = """
import os, signal
from opentinker.signals import StopRequest
with StopRequest():
    os.kill(os.getpid(), signal.SIGINT)
    print("alive", flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    print("too long alive", flush=True)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "alive\n")


def test_outside_the_main_thread_it_does_nothing():
    seen = []

    def work():
        with StopRequest() as stop:
            seen.extend([signal.getsignal(signal.SIGINT), stop.signum])

    handler = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [handler, 0]


def test_a_handler_that_python_did_not_set_becomes_the_default(monkeypatch):
    real, installed = signal.signal, []

    def from_c(signum, handler):
        installed.append(handler)
        real(signum, handler)

    monkeypatch.setattr(signal, "signal", from_c)  # returns None, as for a handler set by other code
    before = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)}
    with StopRequest():
        pass
    assert installed[2:] == [signal.SIG_DFL, signal.SIG_DFL]
    for signum, handler in before.items():
        real(signum, handler)


def test_before_it_listens_signals_do_what_they_did(signum):
    calls = []
    signal.signal(signum, lambda *_: calls.append("before"))
    said = []
    with StopRequest(armed=False) as stop:
        os.kill(os.getpid(), signum)
        assert (calls, stop.signum) == (["before"], 0)
        with stop.listening(lambda: said.append("stopping"), lambda number: said.append(number)):
            os.kill(os.getpid(), signum)
            assert (calls, stop.signum, said) == (["before"], signum, ["stopping"])
            os.kill(os.getpid(), signum)
        assert (calls, said) == (["before", "before"], ["stopping", signum])
        os.kill(os.getpid(), signum)
    assert calls == ["before"] * 3 and said == ["stopping", signum]


def test_a_second_ctrl_c_stops_an_event_loop_at_once_and_not_at_its_next_await():
    done = []

    async def work():
        os.kill(os.getpid(), signal.SIGINT)
        done.append("first")
        os.kill(os.getpid(), signal.SIGINT)
        done.append("second")

    with pytest.raises(KeyboardInterrupt), StopRequest():
        asyncio.run(work())
    assert done == ["first"]
