"""Rules of users: YAML files, read with every mistake of their form told in a sentence."""

from __future__ import annotations

from pathlib import Path

import yaml

from pef.files import text_of
from pef.foreign import reading, why

from .errors import CompileError

_KINDS = {type(None): "nothing", int: "a number", str: "a text", list: "a list", dict: "a table"}


def read_rules(path: Path, kind: str) -> str:
    """Return the text of the file at `path`; `kind` is what messages call its rules."""
    try:
        return text_of(path)
    except OSError as error:
        raise CompileError(f"{path}: cannot read the {kind}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise CompileError(f"{path}: {kind} are a YAML file; this is not text.") from error


def parse_yaml(text: str, origin: str) -> object:
    """Return what `text` holds; `origin` names the file in error messages."""
    with reading(lambda error: CompileError(f"{origin}: not a valid YAML file: {why(error)}.")):
        return yaml.load(text, Loader=UniqueKeys)


def kind_of(value: object) -> str:
    """Return what a message calls a value of a file."""
    return _KINDS.get(type(value), f"a {type(value).__name__}")


class UniqueKeys(yaml.SafeLoader):
    """YAML without tags, in which a key that appears twice is an error, not silently the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:
        """Return the content of a mapping."""
        seen: set[object] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str) and key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key!r} appears twice", key_node.start_mark
                )
            seen.add(key if isinstance(key, str) else id(key_node))
        return dict(super().construct_mapping(node, deep))
