"""Reminders with Django under WSGI, and a tocsin server beside it. Run it: gunicorn reminders_django_wsgi

The environment has TOCSIN_SECRETS (the server's), TOCSIN_TOKEN and TOCSIN_URL. A project of one file; in yours the
settings, the views and `wsgi.py` are files of their own.
"""

import json
import os
import sys

from django.conf import settings
from django.core.management import execute_from_command_line
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, JsonResponse
from django.urls import path
from django.utils.deprecation import MiddlewareMixin

from tocsin import Received, Receiver, SQLiteDedup, SyncClient, TocsinError

# ---- settings.py
settings.configure(
    ROOT_URLCONF=__name__,
    ALLOWED_HOSTS=["127.0.0.1"],
    SECRET_KEY=os.environ.get("DJANGO_SECRET_KEY", "for tests only"),
    MIDDLEWARE=[f"{__name__}.Refused"],
)

# ---- jobs.py
URL = os.environ.get("TOCSIN_URL", "http://127.0.0.1:8321")
client = SyncClient(URL, token=os.environ.get("TOCSIN_TOKEN"), timeout_s=5, patience_s=2)  # a request waits for it
receiver = Receiver(os.environ["TOCSIN_SECRETS"].split(","), dedup=SQLiteDedup("received.db"))


@receiver.handler("reminders:send")
def send(args: dict[str, str], job: Received) -> None:
    print(f"to {job.instance}: {args['text']}", flush=True)


# ---- middleware.py
class Refused(MiddlewareMixin):  # type: ignore[misc]  # Django has no types
    def process_exception(self, request: HttpRequest, error: Exception) -> JsonResponse | None:
        return JsonResponse(error.to_dict(), status=error.status) if isinstance(error, TocsinError) else None


# ---- views.py
def reminders(request: HttpRequest, user: str) -> JsonResponse:
    jobs = client.scheduler(user)
    if request.method == "POST":
        asked = json.loads(request.body)
        job_id = jobs.run_after(asked.get("after", "1h"), "reminders:send", {"text": asked["text"]})
        return JsonResponse({"id": job_id})
    return JsonResponse(jobs.list().to_dict())


def reminder(request: HttpRequest, user: str, id: str) -> JsonResponse:
    if request.method != "DELETE":
        return JsonResponse({}, status=405, headers={"allow": "DELETE"})
    return JsonResponse(client.scheduler(user).cancel(id).to_dict())


# ---- urls.py
urlpatterns = [
    path("users/<user>/reminders", reminders),
    path("users/<user>/reminders/<id>", reminder),
    path("_tocsin/callback", receiver.django_view),
]

# ---- wsgi.py, manage.py
application = get_wsgi_application()

if __name__ == "__main__":
    execute_from_command_line(sys.argv)
