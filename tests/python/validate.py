"""The part of JSON Schema (2020-12) that docs/plan.schema.json uses, and no more."""
import re

KNOWN = {"$schema", "$id", "$ref", "$defs", "title", "description", "type", "enum", "properties",
         "required", "additionalProperties", "items", "minItems", "minimum", "maximum", "pattern"}
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int}


def faults(value, schema, root=None, place="$"):
    """Where and how a value breaks a schema; empty when it does not."""
    root = root or schema
    unknown = set(schema) - KNOWN
    if unknown:
        raise ValueError(f"{place}: keywords that this validator does not know: {unknown}")
    found = []
    if "$ref" in schema:
        target = root
        for name in schema["$ref"].removeprefix("#/").split("/"):
            target = target[name]
        found += faults(value, target, root, place)
    if "type" in schema:
        right = isinstance(value, TYPES[schema["type"]])
        if not right or (schema["type"] == "integer" and isinstance(value, bool)):
            return found + [f"{place}: expected {schema['type']}, found {value!r:.40}"]
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{place}: expected one of {schema['enum']}, found {value!r:.40}")
    if value < schema.get("minimum", value) if isinstance(value, int) else False:
        found.append(f"{place}: below {schema['minimum']}")
    if value > schema.get("maximum", value) if isinstance(value, int) else False:
        found.append(f"{place}: above {schema['maximum']}")
    if isinstance(value, str) and "pattern" in schema and not re.search(schema["pattern"], value):
        found.append(f"{place}: {value!r:.60} does not match {schema['pattern']}")
    if isinstance(value, list):
        if len(value) < schema.get("minItems", 0):
            found.append(f"{place}: expected at least {schema['minItems']} items")
        for i, item in enumerate(value if "items" in schema else []):
            found += faults(item, schema["items"], root, f"{place}[{i}]")
    if isinstance(value, dict):
        known = schema.get("properties", {})
        found += [f"{place}.{key} is missing" for key in schema.get("required", [])
                  if key not in value]
        for key, item in value.items():
            if key in known:
                found += faults(item, known[key], root, f"{place}.{key}")
            elif schema.get("additionalProperties") is False:
                found.append(f"{place}.{key} is not known")
    return found
