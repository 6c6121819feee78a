"""The HTTP reference, rendered from the OpenAPI document that a server answers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tocsin.actors.http.openapi import document

PAGE: Final = "reference/http.md"
BY_NAME: Final = "/i/{instance}"
Json = Mapping[str, Any]


def pages() -> dict[str, str]:
    """Return the page by its path inside the site, and the document itself beside it."""
    whole = document(tokens=True)
    return {PAGE: "\n".join(lines(whole)).rstrip() + "\n", "openapi.json": json.dumps(whole, indent=1) + "\n"}


def lines(whole: Json) -> Iterator[str]:
    """Write the page: what holds everywhere, then each route under its group, then the values."""
    yield from ("# HTTP", "", whole["info"]["description"], "")
    yield from ("The same as data: [openapi.json](../openapi.json), which every server answers too.", "")
    for tag in whole["tags"]:
        yield from (f"## {tag['name'].capitalize()}", "")
        if tag.get("description"):
            yield from (tag["description"], "")
        for path, methods in whole["paths"].items():
            if path.startswith(BY_NAME + "/"):
                continue  # the same as the one at the root
            for method, about in methods.items():
                if method in {"get", "put", "post", "delete"} and tag["name"] in about["tags"]:
                    yield from route(whole, path, method.upper(), about)
    yield from ("## Values", "")
    for name, schema in sorted(whole["components"]["schemas"].items()):
        yield from (f"### {name}", "", schema.get("description", ""), "", *table(schema))


def route(whole: Json, path: str, method: str, about: Json) -> Iterator[str]:
    """Write one route: what it does, what it takes, what it answers."""
    yield from (f"### {method} {path}", "", f"{about['summary']}.", "")
    if about.get("description"):
        yield from (about["description"], "")
    if about.get("parameters"):
        yield from ("| parameter | in | type | what it is |", "|---|---|---|---|")
        for one in about["parameters"]:
            needed = ", required" if one.get("required") else ""
            about_it = cell(one.get("description", ""))
            yield f"| `{one['name']}` | {one['in']}{needed} | {kind(one['schema'])} | {about_it} |"
        yield ""
    for content in about.get("requestBody", {}).get("content", {}).values():
        yield from (f"Body: {kind(content['schema'])}", "", *examples(content))
    errors = []
    for status, answer in about["responses"].items():
        if "$ref" in answer:
            errors += codes(answer["$ref"])
            continue
        for content in answer.get("content", {}).values():
            yield from (f"Answer {status}: {kind(content['schema'])}", "", *examples(content))
    if errors:
        yield from (f"[Errors](../errors.md): {', '.join(f'`{one}`' for one in errors)}", "")


def codes(reference: str) -> list[str]:
    """Return the codes of errors that a shared response stands for; its name lists them."""
    return reference.rpartition("/")[2].split("-")[1:]


def examples(content: Json) -> Iterator[str]:
    """Write the first example of a body."""
    for example in [*content.get("examples", {}).values()][:1]:
        yield from ("```json", json.dumps(example["value"], indent=2, ensure_ascii=False), "```", "")


def table(schema: Json) -> Iterator[str]:
    """Write the members of an object, or the type of what is none."""
    members = schema.get("properties")
    if members is None:
        yield from (kind(schema), "")
        return
    required = set(schema.get("required", ()))
    yield from ("| member | type | what it is |", "|---|---|---|")
    for name, member in members.items():
        star = " (required)" if name in required else ""
        yield f"| `{name}`{star} | {kind(member)} | {cell(member.get('description', ''))} |"
    yield ""


def kind(schema: Json | bool) -> str:
    """Say a schema's type in a few words, with its limits; a link where it is one of the values below."""
    if isinstance(schema, bool) or not schema:
        return "any"
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for key, word in (("anyOf", " or "), ("oneOf", " or "), ("allOf", " and ")):
        if key in schema:
            return word.join(dict.fromkeys(kind(one) for one in schema[key]))
    if "enum" in schema:
        return " \\| ".join(f"`{json.dumps(one)}`" for one in schema["enum"])
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    name = schema.get("type", "any")
    text = " or ".join(name) if isinstance(name, list) else str(name)
    if text == "array":
        text = f"array of {kind(schema.get('items', True))}"
    limits = [f"{said} {schema[key]}" for key, said in LIMITS if key in schema]
    return f"{text} ({', '.join(limits)})" if limits else text


LIMITS: Final = (
    ("minimum", "from"), ("maximum", "to"), ("minLength", "length from"), ("maxLength", "length to"),
    ("minItems", "items from"), ("maxItems", "items to"),
)  # fmt: skip


def cell(text: str) -> str:
    """Write a text in a cell of a table."""
    return " ".join(text.replace("|", r"\|").split())
