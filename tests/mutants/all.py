"""All mutants that a test of the suite must catch, room by room."""

from __future__ import annotations

from tests.mutants.attempts import ATTEMPTS
from tests.mutants.backfilling import BACKFILLING
from tests.mutants.benchmarks import BENCHMARKS
from tests.mutants.callbacks import CALLBACKS
from tests.mutants.clients import CLIENTS
from tests.mutants.clocks import CLOCKS
from tests.mutants.clusters import CLUSTERS
from tests.mutants.dashboard import DASHBOARD
from tests.mutants.fairness import FAIRNESS
from tests.mutants.feed import FEED
from tests.mutants.freeing import FREEING
from tests.mutants.grouping import GROUPING
from tests.mutants.health import HEALTH
from tests.mutants.hostile_browsers import HOSTILE_BROWSERS
from tests.mutants.jobs import JOBS
from tests.mutants.labs import LABS
from tests.mutants.lists import LISTS
from tests.mutants.metrics import COUNTED
from tests.mutants.once import ONCE
from tests.mutants.operating import OPERATING
from tests.mutants.origins import ORIGINS
from tests.mutants.outbox_mail import OUTBOX_MAIL
from tests.mutants.over_http import OVER_HTTP
from tests.mutants.owning import OWNING
from tests.mutants.pages import PAGES
from tests.mutants.postgresql import POSTGRESQL
from tests.mutants.putting_off import PUTTING_OFF
from tests.mutants.rates import RATED
from tests.mutants.receiver import RECEIVER
from tests.mutants.rehearsing import REHEARSING
from tests.mutants.routing import OF_ROUTING
from tests.mutants.several_stores import SEVERAL_STORES
from tests.mutants.sharing import SHARING
from tests.mutants.stores import STORES
from tests.mutants.transfers import TRANSFERS
from tests.mutants.turns import TURNS
from tests.mutants.undoing import UNDOING
from tests.mutants.urls import URLS
from tests.mutants.work_pages import WORK_PAGES
from tests.mutants.workers import WORKERS

MUTANTS = (
    *PUTTING_OFF,
    *UNDOING,
    *ORIGINS,
    *JOBS,
    *ATTEMPTS,
    *LISTS,
    *CALLBACKS,
    *RATED,
    *RECEIVER,
    *OF_ROUTING,
    *STORES,
    *SEVERAL_STORES,
    *POSTGRESQL,
    *CLIENTS,
    *OVER_HTTP,
    *WORKERS,
    *TURNS,
    *TRANSFERS,
    *ONCE,
    *SHARING,
    *LABS,
    *CLOCKS,
    *REHEARSING,
    *CLUSTERS,
    *OWNING,
    *OUTBOX_MAIL,
    *BENCHMARKS,
    *PAGES,
    *WORK_PAGES,
    *DASHBOARD,
    *OPERATING,
    *HEALTH,
    *HOSTILE_BROWSERS,
    *FAIRNESS,
    *FEED,
    *BACKFILLING,
    *FREEING,
    *GROUPING,
    *COUNTED,
    *URLS,
)
