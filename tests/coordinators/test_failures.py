"""A failure is logged whole once, then in a line."""

import logging

from opentinker.coordinators.failures import forget_failures, log_failure

ONE = 'episode 1 failed\n  File "game.py", line 3, in step\nValueError: no'
AGAIN = 'episode 2 failed\n  File "game.py", line 3, in step\nValueError: no'
OTHER = 'episode 3 failed\n  File "game.py", line 9, in reset\nValueError: no'


def test_the_traceback_is_logged_once_per_place_and_step(caplog):
    for text in (ONE, AGAIN, OTHER):
        log_failure(text)
    forget_failures()
    log_failure(AGAIN)
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.ERROR, ONE),
        (logging.WARNING, "episode 2 failed (as before)"),
        (logging.ERROR, OTHER),
        (logging.ERROR, AGAIN),
    ]
