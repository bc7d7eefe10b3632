"""Cuts the commands out of the five documents: what a reader would type into a shell, in blocks and in running text."""
import re

import blocks

# What stands before a command in the documents' blocks.
_PROMPT = re.compile(r"^\s*(?:\([\w.-]+\)\s*)?(?:root@CONTAINERID:/)?\$\s+|^\s*!")
_SHELLS = ("shell", "bash")
# Blocks without a language are commands where a line begins like one; otherwise they are output.
_WORDS = ("python", "python3", "pip", "conda", "docker", "gcloud", "git", "gsutil", "sudo", "echo", "export", "cd",
          "PJRT_DEVICE=TPU")
_SPAN = re.compile(r"(`+)([^`]+?)\1")
_SCRIPT = re.compile(r"^[\w./-]+\.sh$")
_ASSIGNMENT = re.compile(r"^\w+=\S+ ")


def _is_command(text):
    text = _ASSIGNMENT.sub("", text)
    words = text.split()
    return bool(words) and (words[0] in _WORDS and len(words) > 1 or bool(_SCRIPT.match(words[0])))


def _joined(text):
    """Lines, with those that continue a command put behind it: after a backslash, or where they begin with an option."""
    lines = []
    for line in text.splitlines():
        if lines and (lines[-1].endswith("\\") or line.startswith("--")):
            lines[-1] = lines[-1].rstrip("\\").rstrip() + " " + line.strip()
        else:
            lines.append(line.strip())
    return lines


def _of_block(block):
    lines = [line for line in _joined(block.text) if line and not line.startswith("#")]
    prompted = [_PROMPT.sub("", line) for line in lines if _PROMPT.match(line)]
    if prompted:
        return prompted
    if block.language in _SHELLS:
        return lines
    return lines if not block.language and lines and _is_command(lines[0]) else []


def _in_text():
    """Spans of code in running text that are commands. A span may go on in the next line."""
    for seed, lines in blocks.documents():
        inside = False
        prose = []
        for line in lines:
            fence = line.strip().startswith("```") and line.count("```") == 1
            inside = inside != fence
            prose.append("" if inside or fence else line)
        for paragraph in re.split(r"\n\s*\n", "\n".join(prose)):
            for _, span in _SPAN.findall(paragraph):
                span = " ".join(span.split())
                if _is_command(span):
                    yield seed, span


def commands():
    """(document's number, command), each command once."""
    found = [(block.seed, command) for block in blocks.blocks() for command in _of_block(block)]
    found += list(_in_text())
    seen, once = set(), []
    for seed, command in found:
        if command not in seen:
            seen.add(command)
            once.append((seed, command))
    return once


if __name__ == "__main__":
    for row in commands():
        print(*row)
