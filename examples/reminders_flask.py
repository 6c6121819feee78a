"""Reminders with Flask, and a tocsin server beside it. Run it: gunicorn 'reminders_flask:create_app()'

The environment has TOCSIN_SECRETS (the server's), TOCSIN_TOKEN and TOCSIN_URL.
"""

import os

from flask import Blueprint, Flask, current_app, jsonify, request
from flask.typing import ResponseReturnValue

from tocsin import Received, Receiver, SQLiteDedup, SyncClient, SyncScheduler, TocsinError

URL = os.environ.get("TOCSIN_URL", "http://127.0.0.1:8321")
receiver = Receiver(os.environ["TOCSIN_SECRETS"].split(","), dedup=SQLiteDedup("received.db"))
routes = Blueprint("reminders", __name__)


def jobs_of(user: str) -> SyncScheduler:
    client: SyncClient = current_app.extensions["tocsin"]
    return client.scheduler(user)


@routes.post("/users/<user>/reminders")
def remind(user: str) -> ResponseReturnValue:
    asked = request.get_json()
    return {"id": jobs_of(user).run_after(asked.get("after", "1h"), "reminders:send", {"text": asked["text"]})}


@routes.get("/users/<user>/reminders")
def reminders(user: str) -> ResponseReturnValue:
    return jobs_of(user).list().to_dict()


@routes.delete("/users/<user>/reminders/<id>")
def forget(user: str, id: str) -> ResponseReturnValue:
    return jobs_of(user).cancel(id).to_dict()


@receiver.handler("reminders:send")
def send(args: dict[str, str], job: Received) -> None:
    print(f"to {job.instance}: {args['text']}", flush=True)


def refused(error: TocsinError) -> ResponseReturnValue:
    return jsonify(error.to_dict()), error.status


def create_app() -> Flask:
    app = Flask(__name__)
    token = os.environ.get("TOCSIN_TOKEN")
    app.extensions["tocsin"] = SyncClient(URL, token=token, timeout_s=5, patience_s=2)  # a request waits for it
    app.register_error_handler(TocsinError, refused)
    app.register_blueprint(routes)
    app.post("/_tocsin/callback")(receiver.flask_view)
    return app
