"""An origin that is away for twenty seconds, with real processes: nothing is lost, nothing hammers it."""

from __future__ import annotations

import time
from pathlib import Path

from tests.cli.processes import tocsin_serve
from tests.processes.server_process import TOKEN, ask, free_port
from tests.processes.test_sigkill import receiving

JOBS = 300
AWAY_S = 20.0


def test_jobs_due_while_the_origin_is_away_arrive_when_it_is_back(tmp_path: Path) -> None:
    port = free_port()
    settings = {
        "TOCSIN_STORE": "sqlite:///jobs.db",
        "TOCSIN_ORIGIN_URL": f"http://127.0.0.1:{port}",
        "TOCSIN_SECRETS": "whsec_" + "a2V5" * 8,
        "TOCSIN_TOKENS": f"test:admin:{TOKEN}",
    }
    with tocsin_serve(cwd=tmp_path, **settings) as server:
        url = server.url()
        due = time.time_ns() // 1_000_000
        jobs = [{"functionPath": "a:b", "scheduledFor": due + n * 50} for n in range(JOBS)]
        ask(url, "/schedule/batch", {"jobs": jobs})
        time.sleep(AWAY_S)  # the outage itself: this is the time that passes
        away = ask(url, "/status")
        with receiving(port) as receiver:
            stats = receiver.wait_for(JOBS, 30)
            time.sleep(0.5)  # what would come twice comes now
            stats = receiver.stats()
        after = ask(url, "/status")

        assert (away["health"], away["dead"]) == ("red", 0)
        assert away["backlog"] + away["inFlight"] == JOBS
        assert (stats["unique"], stats["count"]) == (JOBS, JOBS)
        assert (after["backlog"], after["dead"], after["health"]) == (0, 0, "green")
        assert server.stop() == 0
