"""THIRD_PARTY_NOTICES and the bill of materials name what the linker put into the library; an archive that nobody claims is an error."""
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ["WEFT_SOURCE"]
BUILD = os.environ["WEFT_BUILD"]
SCRIPT = os.path.join(SOURCE, "scripts", "cmake", "notices.py")
INPUTS = os.path.join(BUILD, "lib", "libweft.inputs")
SHIPS = os.path.join(BUILD, "lib", "stripped", "libweft.so.1")
INSIDE = {"LLVM", "Abseil", "Cap'n Proto", "Zstandard", "zlib", "xxHash", "JSON for Modern C++"}


def private_prefix():
    return subprocess.run([os.path.join(SOURCE, "scripts", "install-deps"), "--print-prefix"], check=True, capture_output=True,
                          text=True).stdout.strip()


class Notices(unittest.TestCase):
    def make(self, inputs, out, **more):
        return subprocess.run([sys.executable, SCRIPT, "--inputs", inputs, "--own", BUILD, "--private", private_prefix(), "--library", SHIPS,
                               "--version", "0.1.0", "--source", SOURCE, "--out", out], capture_output=True, text=True,
                              env=dict(os.environ, **more))

    def test_the_build_s_notices_hold_every_licence(self):
        with open(os.path.join(BUILD, "notices", "THIRD_PARTY_NOTICES"), encoding="utf-8") as handle:
            text = handle.read()
        for name in INSIDE:
            self.assertRegex(text, r"(?m)^" + re.escape(name) + r" \S+$")
        for words in ("LLVM Exceptions to the Apache 2.0 License", "Apache License", "Permission is hereby granted, free of charge",
                      "Redistribution and use in source and binary forms", "GCC RUNTIME LIBRARY EXCEPTION"):
            self.assertIn(words.lower(), text.lower())

    def test_the_bill_of_materials_is_spdx_2_3_and_knows_the_library(self):
        with open(os.path.join(BUILD, "notices", "weft.spdx.json"), encoding="utf-8") as handle:
            bill = json.load(handle)
        self.assertEqual(("SPDX-2.3", "CC0-1.0", "SPDXRef-DOCUMENT"), (bill["spdxVersion"], bill["dataLicense"], bill["SPDXID"]))
        self.assertRegex(bill["creationInfo"]["created"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        packages = {package["name"]: package for package in bill["packages"]}
        self.assertLessEqual(INSIDE | {"weft"}, set(packages))
        identifiers = [package["SPDXID"] for package in bill["packages"]]
        self.assertEqual(len(identifiers), len(set(identifiers)))
        for identifier in identifiers:
            self.assertRegex(identifier, r"^SPDXRef-[A-Za-z0-9.-]+$")
        for package in packages.values():
            self.assertTrue(package["versionInfo"] and package["licenseConcluded"] and package["downloadLocation"], package)
        linked = {r["relatedSpdxElement"] for r in bill["relationships"] if r["relationshipType"] == "STATIC_LINK"}
        self.assertEqual(set(identifiers) - {"SPDXRef-weft"}, linked)
        with open(SHIPS, "rb") as handle:
            self.assertEqual(hashlib.sha256(handle.read()).hexdigest(), packages["weft"]["checksums"][0]["checksumValue"])

    def test_an_archive_that_nobody_claims_is_an_error(self):
        with open(INPUTS, encoding="utf-8") as handle:
            text = handle.read()
        with tempfile.TemporaryDirectory() as work:
            inputs = os.path.join(work, "inputs")
            with open(inputs, "w", encoding="utf-8") as out:
                out.write(text.replace(":", ": /usr/lib/x86_64-linux-gnu/libffi.a", 1))
            done = self.make(inputs, os.path.join(work, "out"))
            self.assertEqual(1, done.returncode, done.stdout + done.stderr)
            self.assertIn("/usr/lib/x86_64-linux-gnu/libffi.a", done.stderr)
            self.assertFalse(os.path.exists(os.path.join(work, "out")))

    def test_the_same_inputs_give_the_same_bytes(self):
        with tempfile.TemporaryDirectory() as work:
            made = []
            for name in ("one", "two"):
                done = self.make(INPUTS, os.path.join(work, name), SOURCE_DATE_EPOCH="1700000000")
                self.assertEqual(0, done.returncode, done.stderr)
                files = []
                for file in ("THIRD_PARTY_NOTICES", "weft.spdx.json"):
                    with open(os.path.join(work, name, file), "rb") as handle:
                        files.append(handle.read())
                made.append(files)
            self.assertEqual(made[0], made[1])
            self.assertEqual("2023-11-14T22:13:20Z", json.loads(made[0][1])["creationInfo"]["created"])


if __name__ == "__main__":
    if os.environ.get("WEFT_SYSTEM_DEPS") == "ON":
        print("SKIPPED: with the system's libraries nothing of third parties is in the library that this knows of")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=2)
