"""Adds options to a copy of the description: one line of api.json each, nothing else by hand. The generator must put each where its
line says: in the struct that the compiler or the engine reads, with its default, in the key of a program where it changes code, in
the copy from what the caller set, and in the documents. The generated structs are compiled and asked."""
import os
import shutil
import subprocess
import tempfile
import unittest

SOURCE = os.environ["WEFT_SOURCE"]
LINES = {  # behind which option: the line
    "allow_winograd": '    {"name": "unroll_most", "type": "int", "field": "program", "default": "8", "since": "1.1", "doc": "runs written out"},\n'
                      '    {"name": "fuse_sums", "type": "bool", "field": "program", "default": "1", "since": "1.1", "doc": "sums join loops"},\n'
                      '    {"name": "say_why", "type": "bool", "field": "compiler", "default": "0", "since": "1.1", "doc": "says why"},\n',
    "seed": '    {"name": "greeting", "type": "text", "field": "engine", "default": "hello", "since": "1.1", "doc": "said first"},\n'}
PROGRAM = r"""
#include <cstdio>
#include "src/runtime/generated/program_options.h"
#include "src/lazy/service/generated/engine_options.h"
int main() {
  weft::ProgramOptions options;
  std::puts(weft::KeyText(options).c_str());
  options.unroll_most = 4;
  options.fuse_sums = false;
  options.say_why = true;
  std::puts(weft::KeyText(options).c_str());
  std::puts(weft::lazy::EngineOptions().greeting.c_str());
}
"""
# The one function of Abseil that the header uses, for the types that it is given.
STR_CAT = r"""
#pragma once
#include <sstream>
#include <string>
namespace absl {
template <class... Parts> std::string StrCat(const Parts&... parts) { std::ostringstream all; (all << ... << parts); return all.str(); }
}
"""


class AddOption(unittest.TestCase):
    def setUp(self):
        self.copy = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.copy)
        # The generator looks for the folders of operations and for the page with the table.
        for folder in ("include", "bindings/generate", "src/ops"):
            shutil.copytree(os.path.join(SOURCE, folder), os.path.join(self.copy, folder))
        os.makedirs(os.path.join(self.copy, "docs"))
        shutil.copy(os.path.join(SOURCE, "docs/concepts.md"), os.path.join(self.copy, "docs"))
        path = os.path.join(self.copy, "bindings/generate/api.json")
        text = self.read("bindings/generate/api.json").splitlines(keepends=True)
        with open(path, "w", encoding="utf-8") as f:
            for line in text:
                f.write(line)
                for name, added in LINES.items():
                    if line.startswith('    {"name": "%s", "type"' % name):
                        f.write(added)
        for more in ([], ["--build", os.path.join(self.copy, "built")]):
            subprocess.run(["python3", os.path.join(self.copy, "bindings/generate"), *more], check=True, stdout=subprocess.PIPE)

    def read(self, path):
        with open(os.path.join(self.copy, path), encoding="utf-8") as f:
            return f.read()

    def test_structs_defaults_and_key(self):
        for path, content in (("main.cc", PROGRAM), ("absl/strings/str_cat.h", STR_CAT)):
            os.makedirs(os.path.dirname(os.path.join(self.copy, path)), exist_ok=True)
            with open(os.path.join(self.copy, path), "w", encoding="utf-8") as f:
                f.write(content)
        program = os.path.join(self.copy, "main")
        subprocess.run(["g++", "-std=c++20", "-I", self.copy, "-I", os.path.join(self.copy, "built"), os.path.join(self.copy, "main.cc"), "-o", program], check=True)
        said = subprocess.run([program], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
        self.assertEqual(said, ["isa= unroll_most=8 fuse_sums=1", "isa= unroll_most=4 fuse_sums=0", "hello"])

    def test_the_callers_values_arrive(self):
        copied = self.read("built/src/c_api/generated/option_copy.h")
        for line in ("options->greeting = settings.text(Option::kGreeting);", "options->program.unroll_most = settings.integer(Option::kUnrollMost);",
                     "options->program.say_why = settings.truth(Option::kSayWhy);"):
            self.assertIn(line, copied)

    def test_documents_and_the_table_name_it(self):
        for path in ("docs/options.md", "built/src/c_api/generated/option_table.h", "include/c_api/weft_base.h"):
            self.assertIn("unroll_most", self.read(path), path)


if __name__ == "__main__":
    unittest.main()
