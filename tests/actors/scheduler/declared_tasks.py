"""An app's tasks, as a module declares them before there is a host."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Any

from pydantic import BaseModel, Field

from tocsin import Context, JobContext, Received, TerminalError


class Urgency(Enum):
    LOW = "low"
    HIGH = "high"


@dataclass
class Invoice:
    number: int
    due: datetime
    total: Decimal = Decimal(0)


class Order(BaseModel):
    number: int = Field(gt=0)


class Calls(list[tuple[Any, ...]]):
    """What handlers were called with."""


CALLS = Calls()


async def remind(job: JobContext, invoice: Invoice, urgency: Urgency = Urgency.LOW, *, copies: int = 1) -> Invoice:
    """Also with a context, which callers do not give."""
    CALLS.append((job.id, job.target, invoice, urgency, copies))
    return invoice


def add(a: int, b: float = 2, /) -> float:
    CALLS.append((a, b))
    return a + b


async def pulled(context: Context, number: int) -> int:
    CALLS.append((context.queue, number))
    return number


async def called(job: Received, number: int) -> int:
    CALLS.append((job.sent_ms > 0, number))
    return number


async def order(order: Order, more: list[Order] | None = None) -> Order:
    CALLS.append((order, more))
    return order


async def nothing() -> None:
    CALLS.append(())


async def declined(number: int) -> None:
    raise TerminalError("declined", code="declined", data={"number": number})
