"""`docs/reference/api.md`, from the OpenAPI document of the server's routes."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from streamwell.server.app import api_schema
from tools.reference import NOTICE, table

INTRO = """\
# HTTP API

All routes and fields, from the OpenAPI document of the server. What they mean, what a stream
looks like and which errors there are is told in [the API](../api.md), with the two WebSockets,
which OpenAPI has no words for. All fields but those that must be there may be left out or be
`null`. For the lists `stop`, `prompt`, `content` and `input` a single text will do. Fields that
nobody knows are ignored and logged once; what is known and not served gets 400."""

SHARED_INTRO = """\
## What all requests that generate take

In the query of a `GET`, and of `POST /`, these are the same fields."""

SHARED_ANCHOR = "what-all-requests-that-generate-take"
_TITLES = {"generation": "completions"}
_SHARED_BY = ("ChatRequest", "CompletionRequest", "StartRunRequest")
Schema = Mapping[str, Any]


def api_page() -> str:
    """Every route with its parameters, and the fields of every request."""
    document = api_schema()
    schemas: Schema = document["components"]["schemas"]
    shared = _shared(schemas)
    parts = [INTRO, NOTICE]
    for tag, routes in _by_tag(document["paths"]).items():
        parts += [f"## Routes: {_TITLES.get(tag, tag)}", _routes(routes)]
    parts += [SHARED_INTRO, _fields({"properties": shared})]
    used = _bodies(document["paths"]) | _within(schemas)
    for name in sorted(used):
        parts += [f"## {name}", *_schema(schemas[name], shared)]
    return "\n\n".join(parts) + "\n"


def _by_tag(paths: Schema) -> dict[str, list[tuple[str, str, Schema, bool]]]:
    """Method, path, operation, and whether it answers without `/v1` too; by their tags."""
    found = defaultdict(list)
    for path, methods in paths.items():
        if "/v1" + path in paths:
            continue
        is_bare_too = path.removeprefix("/v1") in paths and path.startswith("/v1")
        for method, operation in methods.items():
            found[operation["tags"][0]].append((method.upper(), path, operation, is_bare_too))
    return dict(found)


def _routes(routes: list[tuple[str, str, Schema, bool]]) -> str:
    rows = []
    for method, path, operation, is_bare_too in routes:
        without = "<br>also without `/v1`" if is_bare_too else ""
        takes = ", ".join(_taken(operation))
        rows.append((f"`{method} {path}`{without}", operation["description"], takes))
    return table(("route", "does", "takes"), rows)


def _taken(operation: Schema) -> Iterator[str]:
    for parameter in operation.get("parameters", ()):
        if parameter["in"] != "path":
            header = " (header)" if parameter["in"] == "header" else ""
            yield f"`{parameter['name']}`{header}"
    for name in _refs(operation.get("requestBody", {})):
        yield f"[{name}](#{name.lower()})"


def _bodies(paths: Schema) -> set[str]:
    operations = [operation for methods in paths.values() for operation in methods.values()]
    return {name for one in operations for name in _refs(one.get("requestBody", {}))}


def _within(schemas: Schema) -> set[str]:
    """What other schemas have as fields."""
    return {name for schema in schemas.values() for name in _refs(schema)} - {"ValidationError"}


def _refs(value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        if "$ref" in value:
            yield str(value["$ref"]).rpartition("/")[2]
        for inner in value.values():
            yield from _refs(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _refs(inner)


def _shared(schemas: Schema) -> dict[str, Any]:
    first, *others = (schemas[name]["properties"] for name in _SHARED_BY)
    return {
        field: schema
        for field, schema in first.items()
        if all(other.get(field) == schema for other in others)
    }


def _schema(schema: Schema, shared: Schema) -> Iterator[str]:
    if description := schema.get("description"):
        yield description
    properties = schema["properties"]
    missing = [name for name in shared if shared[name] != properties.get(name)]
    if len(missing) > len(shared) / 2:
        yield _fields(schema)
        return
    own = {name: one for name, one in properties.items() if shared.get(name) != one}
    yield _fields({**schema, "properties": own})
    but = f", but not {', '.join(f'`{name}`' for name in missing)}" if missing else ""
    yield f"And [what all requests that generate take](#{SHARED_ANCHOR}){but}."


def _fields(schema: Schema) -> str:
    required = schema.get("required", ())
    rows = [
        (f"`{name}`", _kind(one), "must be there" if name in required else _default(one))
        for name, one in schema["properties"].items()
    ]
    return table(("field", "is", "default"), rows)


def _default(schema: Schema) -> str:
    default = schema.get("default")
    return "" if default in (None, [], {}) else f"`{json.dumps(default)}`"


def _kind(schema: Schema) -> str:
    """Type and bounds in words; that a field may be null goes without saying."""
    if "anyOf" in schema:
        return " or ".join(_kind(one) for one in schema["anyOf"] if one.get("type") != "null")
    if "$ref" in schema:
        (name,) = _refs(schema)
        return f"[{name}](#{name.lower()})"
    if "const" in schema or "enum" in schema:
        values = schema.get("enum", [schema.get("const")])
        return ", ".join(f"`{value}`" for value in values)
    return _typed(schema)


def _typed(schema: Schema) -> str:
    match schema.get("type"):
        case "array":
            items = schema.get("items", {})
            of = f"({_kind(items)})" if "anyOf" in items else _kind(items)
            bounds = _bounds(schema, "Items", " of them").removeprefix(", ")
            return f"list of {of} ({bounds})" if bounds else f"list of {of}"
        case "object" if isinstance(schema.get("additionalProperties"), Mapping):
            return f"object of {_kind(schema['additionalProperties'])}"
        case "string":
            return "text" + _bounds(schema, "Length", " characters")
        case "integer" | "number" as number:
            return number + _bounds(schema, "imum")
        case other:
            return "true or false" if other == "boolean" else "any value"


def _bounds(schema: Schema, suffix: str, unit: str = "") -> str:
    low, high = schema.get(f"min{suffix}"), schema.get(f"max{suffix}")
    if high is not None and high >= 2**62:
        return ", 64 bits, signed"
    if low is None and high is None:
        return ""
    if low is None or high is None:
        return f", up to {high:.12g}{unit}" if low is None else f", at least {low:.12g}{unit}"
    return f", from {low:.12g} to {high:.12g}{unit}"
