"""Cuts the blocks out of the five documents of ../shared/seeds: Python, and the commands that a reader would type.

A block is known by its document's number and the line of its first line of code, counted from 1.
"""
import ast
import dataclasses
import os
import re
import textwrap

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
SEEDS = os.environ.get("WEFT_SEEDS") or os.path.join(os.path.dirname(ROOT), "shared", "seeds")

_FENCE = re.compile(r"^(\s*)```\s*(\w*)\s*$")
_DIRECTIVE = re.compile(r"^(\s*)\.\. code-block::\s*(\w*)\s*$")


@dataclasses.dataclass
class Block:
    seed: str
    line: int
    language: str
    text: str


def documents():
    """(number, lines) of each document."""
    for name in sorted(os.listdir(SEEDS)):
        if name.endswith(".txt"):
            with open(os.path.join(SEEDS, name), encoding="utf-8") as file:
                yield name[:3], file.read().splitlines()


def _fenced(lines, at):
    """Lines of the block whose fence is line `at`, and the index behind it."""
    end = at + 1
    while end < len(lines) and lines[end].strip() != "```":
        end += 1
    return lines[at + 1:end], end + 1


def _directed(lines, at, indent):
    """Lines under the directive at line `at`: those that are indented deeper than it, and empty ones."""
    end = at + 1
    while end < len(lines) and (not lines[end].strip() or len(lines[end]) - len(lines[end].lstrip()) > indent):
        end += 1
    return lines[at + 1:end], end


def _trimmed(body, first):
    """(number of the first line with text, the text without its common indentation)."""
    while body and not body[0].strip():
        body, first = body[1:], first + 1
    return first, textwrap.dedent("\n".join(body)).rstrip() + "\n"


def _is_python(text):
    try:
        parsed = ast.parse(text)
    except SyntaxError:
        return False
    return any(isinstance(node, (ast.Import, ast.ImportFrom)) for node in parsed.body)


def blocks():
    """Every block of the documents. One without a language is python where it parses and imports something."""
    found = []
    for seed, lines in documents():
        at = 0
        while at < len(lines):
            fence, directive = _FENCE.match(lines[at]), _DIRECTIVE.match(lines[at])
            if not fence and not directive:
                at += 1
                continue
            begin = at
            body, at = _fenced(lines, at) if fence else _directed(lines, at, len(directive.group(1)))
            line, text = _trimmed(body, begin + 2)
            language = (fence.group(2) if fence else directive.group(2)).lower()
            if not language and _is_python(text):
                language = "python"
            found.append(Block(seed, line, language, text))
    return found


def python_blocks():
    return [block for block in blocks() if block.language == "python"]
