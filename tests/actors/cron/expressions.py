"""Random cron expressions, such as people write and such as nobody would, most of them due in the small hours."""

from __future__ import annotations

from random import Random

from tests.actors.cron.evaluator import MONTHS, WEEKDAYS


def of_clock(random: Random) -> str:
    """Minute and hour of any kind; mostly every day, so that it has times near a change of the clock."""
    return f"{_minute(random)} {_hour(random)} {_days(random) if random.random() < 0.25 else '* * *'}"


def with_seconds(random: Random) -> str:
    second = random.choice(["0", "*", "*/20", "30", "15,45", "0-59", "59", "10-50/20", "*/7"])
    return f"{second} {of_clock(random)}"


def of_calendar(random: Random) -> str:
    """Days of any kind, at one time."""
    return f"{random.choice(['0 0', '59 23', '30 12'])} {_days(random)}"


def _minute(random: Random) -> str:
    n = random.randrange(60)
    return random.choice(
        [
            "*",
            f"*/{random.choice([2, 5, 7, 15, 20, 30, 45, 59])}",
            "0",
            "30",
            f"{n}",
            f"{random.randrange(60)},{n}",
            f"{n}-59",
            f"{n}-{n}",
            f"0-{n}/{random.choice([1, 4, 13, 20, 59])}",
            f"{n}/15",
            "0-59",
            "1,*",
            "*,5",
            "?",
        ]
    )


def _hour(random: Random) -> str:
    early = random.choice([0, 0, 1, 1, 2, 2, 3, 3, 4, 23])
    return random.choice(
        [
            "*",
            f"*/{random.choice([2, 3, 5, 6, 12, 23])}",
            f"{early}",
            f"{early}",
            f"{early}",
            f"{random.randrange(24)}",
            "0-23",
            "1,2",
            "22,23,0-2",
            f"{early}-{random.randrange(early, 24)}",
            f"0-{early}",
            f"{early}/2",
            "23,*",
            "*,1",
            "0-23/3",
        ]
    )


def _days(random: Random) -> str:
    month = "*" if random.random() < 0.5 else _month(random)
    return f"{_day(random)} {month} {_weekday(random)}"


def _day(random: Random) -> str:
    n = random.randint(1, 31)
    return random.choice(
        [
            "*",
            "*",
            "?",
            f"{n}",
            f"{random.randint(1, 31)},{n}",
            f"{n}-31",
            f"1-{n}/{random.randint(1, 31)}",
            f"{n}/{random.randint(1, 31)}",
            f"*/{random.randint(1, 31)}",
            "*,1",
            "1,*",
            "1-31",
            "L",
            "l",
            f"{n},L",
            f"L,{n}-{random.randint(n, 31)}",
            f"*/{random.randint(2, 31)},L",
            random.choice(["1-30,L", "L,2-31", "1-27,29-31,L", "1-14,16-31,L", "1-31/2,L"]),
            f"{n}W",
            f"{n}w",
            "29-31",
        ]
    )


def _month(random: Random) -> str:
    n = random.randint(1, 12)
    return random.choice(
        [
            f"{n}",
            "2",
            MONTHS[n - 1],
            MONTHS[n - 1].upper(),
            f"{MONTHS[n - 1]}-dec",
            f"{n}-12",
            f"*/{random.randint(1, 12)}",
            f"{random.randint(1, 12)},{n}",
            "4,6,9,11",
            f"{n}/3",
            "?",
        ]
    )


def _weekday(random: Random) -> str:
    n = random.randrange(8)
    return random.choice(
        [
            "*",
            "*",
            "?",
            f"{n}",
            f"{random.randrange(8)},{n}",
            f"{n}-7",
            f"0-{n}",
            f"{n}-{n}",
            f"0-6/{random.randint(1, 7)}",
            f"*/{random.randint(1, 7)}",
            "*,1",
            "1,*",
            "mon-fri",
            "sat-sun",
            "Fri-SUN",
            WEEKDAYS[n % 7].title(),
            f"{n}L",
            f"{WEEKDAYS[n % 7]}L",
            f"{n}#{random.randint(1, 5)}",
            f"{WEEKDAYS[n % 7]}#{random.randint(1, 5)}",
        ]
    )
