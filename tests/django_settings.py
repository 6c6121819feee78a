"""The settings of the one Django app that a process of tests can have."""

from __future__ import annotations

import sys
from functools import cache
from types import ModuleType
from typing import Any

import django
from django.conf import settings


@cache
def django_urls() -> Any:
    """The URL configuration of the one Django app that a process can have."""
    urls: Any = ModuleType("tests_receiver_urls")
    urls.urlpatterns = []
    sys.modules[urls.__name__] = urls
    settings.configure(
        ROOT_URLCONF=urls.__name__,
        ALLOWED_HOSTS=["app"],
        MIDDLEWARE=["django.middleware.csrf.CsrfViewMiddleware"],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:", "ATOMIC_REQUESTS": True}},
    )
    django.setup()
    return urls
