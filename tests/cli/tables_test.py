"""`weft ops`, `weft devices`, `weft ceilings`, completions and the manual page: what they say is what there is."""
import json
import os
import pathlib
import re
import subprocess
import sys
import unittest
import xml.dom.minidom

from weft_command import PROGRAM, WeftCommand

SOURCE = pathlib.Path(os.environ["WEFT_SOURCE"])
BUILD = pathlib.Path(os.environ["WEFT_BUILD"])
API = json.loads((SOURCE / "include" / "c_api" / "weft_api.json").read_text(encoding="utf-8"))


class Tables(WeftCommand):
    def commands(self):
        """By name: its options, with what their values are called."""
        names = re.findall(r"^  ([\w-]+)", self.weft("--help"), re.MULTILINE)
        return {name: re.findall(r"^  (--[\w-]+)", self.weft(name, "--help"), re.MULTILINE) for name in names}


class Ops(Tables):
    def test_every_operation_with_types_gradient_and_other_names(self):
        said = {row["name"]: row for row in json.loads(self.weft("ops", "--json"))["operations"]}
        self.assertEqual({op["c_name"] for op in API["operations"]}, set(said))
        for op in API["operations"]:
            row = said[op["c_name"]]
            self.assertEqual((op["gradient"], op["doc"], op["names"].get("pytorch", []) if op["names"] else []),
                             (row["gradient"], row["doc"], row["pytorch"]), op["c_name"])
            self.assertEqual([(x["name"], " ".join(x["dtypes"])) for x in op["operands"]],
                             [(x["operand"], x["dtypes"]) for x in row["operands"]])
        self.assertEqual("softmax(x: T, axis: int = -1, safe: bool = false) -> (result: T)", said["softmax"]["signature"])

    def test_patterns_names_elsewhere_and_guesses(self):
        self.assertIn("torch.nn.functional.softmax", self.weft("ops", "softmax"))
        found = [row["name"] for row in json.loads(self.weft("ops", "jax.nn.*soft*", "--json"))["operations"]]
        self.assertIn("log_softmax", found)
        self.assertNotIn("add", found)
        self.assertIn("add", [row["name"] for row in json.loads(self.weft("ops", "numpy.add", "--json"))["operations"]])
        self.assertEqual("weft ops: there is no operation 'sofmax', but 'softmax'; 'weft ops' lists all\n", self.weft("ops", "sofmax", status=1))
        self.assertEqual("weft ops: there is no operation 'qqqqqqqqqqq'; 'weft ops' lists all\n", self.weft("ops", "qqqqqqqqqqq", status=1))


class Devices(Tables):
    def test_of_each_platform(self):
        rows = json.loads(self.weft("devices", "--json"))["devices"]
        self.assertEqual(["cpu:0", "reference:0"], [row["name"] for row in rows])
        self.assertEqual(0, rows[0]["limit_bytes"])
        self.assertRegex(self.weft("devices"), r"cpu:0 +x86-64 \w+ +\d+ bytes in use, no limit\n")

    def test_of_a_plugin(self):
        fake = os.environ["WEFT_PJRT_FAKE"]
        rows = json.loads(self.weft("devices", "--json", WEFT_PLUGIN=fake, WEFT_PLUGIN_OPTIONS="devices=2"))["devices"]
        self.assertEqual(["cpu:0", "reference:0", "pjrt:0", "pjrt:1"], [row["name"] for row in rows])
        self.assertEqual([0, 1], rows[2]["coords"])
        self.assertEqual(["pjrt:0"], [row["name"] for row in json.loads(self.weft("devices", "--plugin", fake, "--json"))["devices"]])
        self.assertIn("cannot be opened", subprocess.run([PROGRAM, "devices", "--plugin", "/no.so"], capture_output=True, text=True).stdout)


class Ceilings(Tables):
    def test_they_are_measured_once_and_kept(self):
        first = json.loads(self.weft("ceilings", "--json"))
        for name in ("bytes_per_second", "f32", "f64", "bf16", "i8"):
            self.assertGreater(first[name], 10**7, name)
        kept = list((self.work / "weft").glob("ceilings-*.json"))
        self.assertEqual(1, len(kept))
        self.assertEqual(first, json.loads(kept[0].read_text(encoding="utf-8")))
        self.assertEqual(first, json.loads(self.weft("ceilings", "--json")))
        kept[0].write_text(json.dumps(dict(first, f32=123_000_000_000)), encoding="utf-8")
        self.assertIn("f32 123.0,", self.weft("ceilings"))

    def pictures(self):
        """Of a program of one product; its table, and both pictures' texts."""
        (self.work / "p.wir").write_text(
            "func @main(%0: tensor<64x64xf32>) -> (tensor<64x64xf32>) {\n  %1 = dot_general(%0, %0) {lhs_batching_dimensions = [], "
            "rhs_batching_dimensions = [], lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0], precision = DEFAULT} : "
            "tensor<64x64xf32>\n  %2 = exponential(%1) : tensor<64x64xf32>\n  %3 = reduce(%2) {dimensions = [1], reducer = sum} : tensor<64xf32>\n"
            "  %4 = broadcast_in_dim(%3) {shape = [64, 64], broadcast_dimensions = [0]} : tensor<64x64xf32>\n"
            "  %5 = divide(%2, %4) : tensor<64x64xf32>\n  return %5\n}\n", encoding="utf-8")
        header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (64, 64), }".ljust(117) + b"\n"
        (self.work / "x.npy").write_bytes(b"\x93NUMPY\x01\0" + len(header).to_bytes(2, "little") + header + bytes(4 * 64 * 64))
        said = self.weft("profile", "--svg", ".", "--", PROGRAM, "run", "p.wir", "--input", "x.npy")
        return said, *((self.work / name).read_text(encoding="utf-8") for name in ("roofline.svg", "memory.svg", "timeline.svg"))

    def test_pictures_beside_them(self):
        (self.work / "weft").mkdir()
        said, roofline, memory, timeline = self.pictures()
        self.assertIn("this machine's ceilings are not known: 'weft ceilings' measures them", said)
        self.assertIn("ceilings not measured", roofline)
        ceilings = json.loads(self.weft("ceilings", "--json"))
        said, roofline, memory, timeline = self.pictures()
        self.assertRegex(said, r"%  +\d+ +[\d.]+ +\d+ % +[\d.]+ +\d+ % +gemm, gemm ")
        self.assertIn(f"f32 {ceilings['f32'] / 1e9:.1f}", said)
        for text in ("GF/s", "operations a byte", f"memory {ceilings['bytes_per_second'] / 1e9:.1f} GB/s"):
            self.assertIn(f">{text}</text>", roofline)
        for text in ("MiB", "ms since the trace began"):
            self.assertIn(f">{text}</text>", memory)
        for text in ("ms since the trace began", "kernels", "weft-compile"):
            self.assertIn(f">{text}</text>", timeline)
        self.boxes_nest(timeline)
        for picture in (roofline, memory, timeline):
            self.labels_are_apart(picture)

    def test_the_library_s_own_report_has_them(self):
        (self.work / "weft").mkdir()
        self.pictures()  # makes the program and its input
        words = ("profile", "--", PROGRAM, "run", "p.wir", "--input", "x.npy")
        self.assertIn("(most: not measured on this machine, which `weft ceilings` does)", self.weft(*words))
        ceilings = json.loads(self.weft("ceilings", "--json"))
        said = self.weft(*words)
        self.assertRegex(said, r"x +[\d.]+ +[\d.]+ +\d+ % +[\d.]+ +\d+ %  gemm, gemm ")
        self.assertIn(f"(most: {ceilings['bytes_per_second'] / 1e9:.1f} GB/s; GF/s of products: f32 {ceilings['f32'] / 1e9:.1f}, ", said)
        report = json.loads(self.weft("profile", "--json", *words[1:]).splitlines()[-1])
        self.assertEqual(ceilings, report["machine"])
        self.assertEqual([pathlib.Path(report["ceilings_file"])], list((self.work / "weft").glob("ceilings-*.json")))

    def boxes_nest(self, picture):
        """No box lies over another, and each has the text that it has room for."""
        document = xml.dom.minidom.parseString(picture)
        boxes = [tuple(float(box.getAttribute(side)) for side in ("x", "y", "width", "height"))
                 for box in document.getElementsByTagName("rect") if box.getAttribute("x")]
        self.assertGreater(len(boxes), 8)
        for i, a in enumerate(boxes):
            for b in boxes[:i]:
                apart = a[0] + 0.6 >= b[0] + b[2] or b[0] + 0.6 >= a[0] + a[2] or a[1] >= b[1] + b[3] or b[1] >= a[1] + a[3]
                self.assertTrue(apart, (a, b))

    def labels_are_apart(self, picture):
        boxes = []
        for label in xml.dom.minidom.parseString(picture).getElementsByTagName("text"):
            x, y, text = float(label.getAttribute("x")), float(label.getAttribute("y")), label.firstChild.data
            width = 7.2 * len(text)
            left = {"start": x, "end": x - width, "middle": x - width / 2}[label.getAttribute("text-anchor")]
            boxes.append((left, left + width, y - 11, y, text))
        for i, a in enumerate(boxes):
            for b in boxes[:i]:
                self.assertFalse(a[0] < b[1] and b[0] < a[1] and a[2] < b[3] and b[2] < a[3], (a, b))

    def test_misuse(self):
        self.assertIn("--svg nowhere: there is no such folder", self.weft("profile", "--svg", "nowhere", "--", "true", status=1))
        self.assertIn("--svg or --trace, not both", self.weft("profile", "--svg", ".", "--trace", "x", "--", "true", status=2))


class Completion(Tables):
    def completed(self, *words):
        script = (BUILD / "completions" / "weft").read_text(encoding="utf-8")
        line = f"COMP_WORDS=(weft {' '.join(words)}); COMP_CWORD={len(words)}; _weft; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        if words[-1] == "''":
            line = line.replace("'')", "\"\")")
        return subprocess.run(["bash", "-c", script + line], capture_output=True, text=True, check=True, cwd=self.work).stdout.split()

    def test_bash_completes_commands_options_actions_and_files(self):
        commands = self.commands()
        self.assertEqual({*commands, "--help"}, set(self.completed("''")))
        self.assertEqual(["profile"], self.completed("prof"))
        for name, options in commands.items():
            self.assertEqual(set(options), set(self.completed(name, "--")), name)
        self.assertEqual(["verify"], self.completed("cache", "v"))
        self.assertEqual(["repair"], self.completed("ckpt", "rep"))
        (self.work / "program.mlir").write_text("", encoding="utf-8")
        self.assertEqual(["program.mlir"], self.completed("run", "prog"))

    def test_the_other_shells_know_the_same(self):
        zsh, fish = ((BUILD / "completions" / name).read_text(encoding="utf-8") for name in ("_weft", "weft.fish"))
        for name, options in self.commands().items():
            self.assertRegex(zsh, rf"(?m)^    '{name}:")
            self.assertIn(f"complete -c weft -n __fish_use_subcommand -f -a {name} ", fish)
            for option in options:
                self.assertIn(f"'{option}:", zsh)
                self.assertIn(f"__fish_seen_subcommand_from {name}' -l {option[2:]} ", fish)
        for shell, script in (("bash", "weft"), ("zsh", "_weft"), ("fish", "weft.fish")):
            self.assertEqual((BUILD / "completions" / script).read_text(encoding="utf-8"), self.weft("completion", shell))
        self.assertIn("there are bash, zsh and fish", self.weft("completion", "ksh", status=2))

    def test_shells_that_are_here_accept_it(self):
        for shell, script, words in (("bash", "weft", ["-n"]), ("zsh", "_weft", ["-n"]), ("fish", "weft.fish", ["--no-execute"])):
            with self.subTest(shell=shell):
                try:
                    subprocess.run([shell, *words, BUILD / "completions" / script], check=True, timeout=60)
                except FileNotFoundError:
                    self.skipTest(f"{shell} is not installed")

    def test_the_manual_page_has_every_command_and_option(self):
        page = (SOURCE / "docs" / "weft.1").read_text(encoding="utf-8").replace("\\-", "-")
        for name, options in self.commands().items():
            self.assertRegex(page, rf"(?m)^\.B weft {name}$")
            for option in options:
                self.assertIn(option, page, name)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
