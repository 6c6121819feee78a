"""An order and the job that confirms it, written in one SQLAlchemy transaction: both exist, or neither.

`python outbox_sqlalchemy.py` makes orders.db and jobs.db, places two orders, waits until all there are were confirmed,
and exits. Kill it whenever you like, and run it again.
"""

import asyncio
import os
from typing import Any

from sqlalchemy import select, text, update
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from tocsin import ActorHost, Drain, Outbox, Receiver, SQLAlchemyDatabase
from tocsin.dispatch.asgi_transport import AsgiTransport

SECRETS = [os.environ.get("TOCSIN_SECRETS", "whsec_ZXhhbXBsZS1vbmx5LW1ha2UteW91ci1vd24tb25l")]
engine = create_async_engine("sqlite+aiosqlite:///orders.db")  # postgresql+asyncpg://... works the same
sessions = async_sessionmaker(engine, expire_on_commit=False)
outbox = Outbox()  # makes rows for the scheduler named `default`
receiver = Receiver(SECRETS)
all_confirmed = asyncio.Event()


class Base(DeclarativeBase): ...


class Order(Base):
    __tablename__ = "orders"
    number: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]
    confirmations: Mapped[int] = mapped_column(default=0)


async def place_order(session: AsyncSession, item: str) -> None:
    """Write an order and its job. The caller commits; the job exists only if the transaction does."""
    order = Order(item=item)
    session.add(order)
    await session.flush()  # assigns the order number
    entry = outbox.run_after("1s", "orders:confirm", {"number": order.number})
    await session.execute(entry.insert)


@receiver.handler("orders:confirm")
async def confirm(args: dict[str, Any]) -> None:
    async with sessions.begin() as session:
        mine = Order.number == args["number"]
        await session.execute(update(Order).where(mine).values(confirmations=Order.confirmations + 1))
    print(f"order {args['number']} is confirmed", flush=True)
    async with sessions() as session:
        if await session.scalar(select(Order).where(Order.confirmations == 0).limit(1)) is None:
            all_confirmed.set()


async def main() -> None:
    async with engine.begin() as connection:  # better in your migrations
        await connection.run_sync(Base.metadata.create_all)
        for sql in outbox.schema("sqlite"):
            await connection.execute(text(sql))
    host = ActorHost.open(
        "sqlite:///jobs.db", origin="http://app.internal", secrets=SECRETS, transport=AsgiTransport(receiver)
    )
    async with host, Drain(SQLAlchemyDatabase(engine), host) as drain:
        async with sessions.begin() as session:
            await place_order(session, "tea")
            await place_order(session, "cake")
        drain.notify()  # after the commit; without it the drain polls once a second

        async with sessions() as session:
            await place_order(session, "regret")
            await session.rollback()
        await all_confirmed.wait()
    await engine.dispose()


if __name__ == "__main__":
    asyncio.run(main())
