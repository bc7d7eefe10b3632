"""Every file that is derived: from the complete description alone, or from what people write. Committed are those that people read in
the repository; the build makes the others in its own folder."""
import json
import os

from . import (attributes, bodies, cpp, ffi, fluent, fuzz, goldens, headers, languages, lookup, model, operations_page, options,
               python_package, reference, text)

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(os.path.dirname(HERE))
OPS = os.path.join(ROOT, "include", "c_api", "ops.json")


def is_committed(path):
    """Headers with their descriptions, and pages."""
    return path.startswith(("include/", "docs/"))


def read(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def derived(api):
    """Files that follow from the complete description."""
    files = {}
    for module in (headers, options, fluent, bodies, goldens, reference, ffi, fuzz, cpp, python_package, languages):
        for path, content in module.files(api).items():
            assert path not in files, path
            files[path] = content
    return files


def library_files():
    """Files that only the library reads: where options go in it, attributes of its internal operations too."""
    return {**options.library_files(read(os.path.join(HERE, "api.json"))["options"]), **attributes.files(read(OPS)["ops"])}


def committed():
    """{path from the root: text} of the committed files, from api.json, ops.json and lookup.json."""
    api = model.load(os.path.join(HERE, "api.json"), OPS)
    files = text.files(api)
    files.update(derived(model.Api(json.loads(files[text.PATH]))))
    files.update(operations_page.files(read(OPS)["ops"]))
    files.update(lookup.files(ROOT))
    return {path: content for path, content in files.items() if is_committed(path)}


def built():
    """{path from the root: text} of the files that the build makes, from the descriptions as they are committed: they fit the headers."""
    files = {**derived(model.load_description(os.path.join(ROOT, text.PATH))), **library_files()}
    return {path: content for path, content in files.items() if not is_committed(path)}


def write(folder, files):
    """Writes what differs; gives the paths of it."""
    different = differing(folder, files)
    for path in different:
        full = os.path.join(folder, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as f:
            f.write(files[path])
    return different


def differing(folder, files):
    """The paths whose file is missing or has another text."""
    different = []
    for path, content in files.items():
        full = os.path.join(folder, path)
        if os.path.exists(full):
            with open(full, encoding="utf-8") as f:
                if f.read() == content:
                    continue
        different.append(path)
    return different
