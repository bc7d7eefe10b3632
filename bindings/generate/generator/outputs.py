"""Every file that is derived: from the complete description alone, or from what people write."""
import json
import os

from . import (attributes, bodies, cpp, ffi, fluent, fuzz, goldens, headers, languages, lookup, model, operations_page, options,
               python_package, reference, text)

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(os.path.dirname(HERE))
OPS = os.path.join(ROOT, "include", "c_api", "ops.json")


def derived(api):
    """What follows from the complete description."""
    files = {}
    for module in (headers, options, fluent, bodies, goldens, reference, ffi, fuzz, cpp, python_package, languages):
        for path, content in module.files(api).items():
            assert path not in files, path
            files[path] = content
    return files


def outputs():
    api = model.load(os.path.join(HERE, "api.json"), OPS)
    files = text.files(api)
    files.update(derived(model.Api(json.loads(files[text.PATH]))))
    with open(os.path.join(HERE, "api.json"), encoding="utf-8") as f:
        files.update(options.library_files(json.load(f)["options"]))
    with open(OPS, encoding="utf-8") as f:
        table = json.load(f)["ops"]
    files.update(attributes.files(table))  # the library's own, internal operations too
    files.update(operations_page.files(table))
    files.update(lookup.files(ROOT))
    return files
