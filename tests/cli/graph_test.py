"""`weft graph`, `weft explain` and `weft run` of Weft's own text: programs as files, as pictures, and what differs between them."""
import json
import re
import shutil
import sys
import unittest

from weft_command import WeftCommand

LAYER = """func @main(%0: tensor<64x128xf32>, %1: tensor<128x256xf32>) -> (tensor<64x256xf32>) {
  %2 = dot_general(%0, %1) {lhs_batching_dimensions = [], rhs_batching_dimensions = [], lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0], precision = DEFAULT} : tensor<64x256xf32> loc("train.c:7")
  %3 = constant() {value = dense tensor<f32> [1.5]} : tensor<f32> loc("train.c:8")
  %4 = broadcast_in_dim(%3) {shape = [64, 256], broadcast_dimensions = []} : tensor<64x256xf32> loc("train.c:8")
  %5 = multiply(%2, %4) : tensor<64x256xf32> loc("train.c:8")
  %6 = weft.softmax(%5) {axis = 1, safe = false} : tensor<64x256xf32> loc("train.c:9")
  return %6
}
"""
STABLEHLO = """func.func private @twice(%a: tensor<8xf32>) -> tensor<8xf32> {
  %0 = stablehlo.add %a, %a : tensor<8xf32>
  return %0 : tensor<8xf32>
}
func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {
  %0 = func.call @twice(%a) : (tensor<8xf32>) -> tensor<8xf32>
  %1 = func.call @twice(%0) : (tensor<8xf32>) -> tensor<8xf32>
  %2 = stablehlo.exponential %1 : tensor<8xf32>
  return %2 : tensor<8xf32>
}
"""


def chain(count):
    """A program of that many products, so that each is a kernel."""
    square, lines = "tensor<8x8xf32>", []
    for i in range(1, count + 1):
        lines.append(f"  %{i} = dot_general(%{i - 1}, %0) {{lhs_batching_dimensions = [], rhs_batching_dimensions = [], "
                     f"lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0], precision = DEFAULT}} : {square}\n")
    return f"func @main(%0: {square}) -> ({square}) {{\n{''.join(lines)}  return %{count}\n}}\n"


class Programs(WeftCommand):
    def write(self, name, text):
        (self.work / name).write_text(text, encoding="utf-8")
        return name


class Graph(Programs):
    def test_a_cluster_a_kernel_with_its_nodes_size_and_time(self):
        said = json.loads(self.weft("graph", self.write("layer.wir", LAYER), "--json"))
        nodes, kernels = said["nodes"], said["kernels"]
        self.assertEqual(["parameter", "parameter", "dot_general", "constant", "broadcast_in_dim", "multiply", "weft.softmax"],
                         [node["operation"] for node in nodes])
        self.assertEqual(("f32[64,256]", "train.c:7", [0, 1], False), tuple(nodes[2][k] for k in ("type", "position", "operands", "result")))
        self.assertTrue(nodes[6]["result"])
        product = kernels[nodes[2]["kernel"]]
        self.assertIn("gemm", product["implementation"])
        self.assertEqual(2 * 64 * 128 * 256, product["flops"])
        self.assertGreater(product["nanoseconds"], 0)
        self.assertGreaterEqual(product["bytes"], 4 * (64 * 128 + 128 * 256))
        self.assertGreaterEqual(nodes[6]["kernel"], 0)
        for kernel in kernels:
            self.assertLessEqual(set(kernel["nodes"]), set(range(len(nodes))))
        dot = self.weft("graph", "layer.wir")
        self.assertTrue(dot.startswith('digraph "layer.wir" {\n') and dot.endswith("}\n"))
        self.assertEqual(len(kernels), dot.count("subgraph cluster_"))
        self.assertRegex(dot, r"label=\"gemm [^\"]*\\n(?:\d+\.\d{3} ms|\d+\.\d us), \d+ bytes, \d+\.\d GF/s\"")
        self.assertIn('n2 [label="%2 dot_general\\nf32[64,256]\\ntrain.c:7"]', dot)
        self.assertIn('n0 -> n2 [label="0"]', dot)

    def test_calls_are_written_out(self):
        said = json.loads(self.weft("graph", self.write("calls.mlir", STABLEHLO), "--json"))
        self.assertEqual(["parameter", "add", "add", "exponential"], [node["operation"] for node in said["nodes"]])
        self.assertEqual([[], [0, 0], [1, 1], [2]], [node["operands"] for node in said["nodes"]])

    def test_many_operations_are_kernels_alone(self):
        self.write("long.wir", chain(401))
        dot = self.weft("graph", "long.wir")
        self.assertNotIn("cluster", dot)
        self.assertIn('arguments [shape=box, label="1 arguments"]', dot)
        self.assertRegex(dot, r"k0 -> k1\n")
        self.write("short.wir", chain(400))
        self.assertIn("cluster", self.weft("graph", "short.wir"))

    def test_plain_draws_without_running(self):
        dot = self.weft("graph", self.write("layer.wir", LAYER), "--plain")
        self.assertNotIn("cluster", dot)
        self.assertEqual(7, len(re.findall(r"^  n\d+ \[", dot, re.MULTILINE)))

    def test_entries_of_the_cache(self):
        self.weft("run", self.write("calls.mlir", STABLEHLO), "--input", self.npy())
        entries = list(self.work.glob("weft/v1/*/*.tce"))
        self.assertTrue(entries)
        said = json.loads(self.weft("graph", entries[0], "--json"))
        self.assertIn("exponential", [node["operation"] for node in said["nodes"]])

    def npy(self):
        header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (8,), }"
        header += b" " * (118 - len(header) - 1) + b"\n"
        (self.work / "x.npy").write_bytes(b"\x93NUMPY\x01\0" + len(header).to_bytes(2, "little") + header + bytes(32))
        return "x.npy"

    def test_a_picture_by_graphviz(self):
        self.write("layer.wir", LAYER)
        self.assertEqual("weft graph: Graphviz's program 'dot' is not installed; without --svg the graph is written as DOT text\n",
                         self.weft("graph", "layer.wir", "--svg", "a.svg", status=1, PATH="/nowhere"))
        if shutil.which("dot") is None:
            self.skipTest("Graphviz is not installed")
        self.weft("graph", "layer.wir", "--svg", "a.svg")
        self.assertIn("<svg", (self.work / "a.svg").read_text(encoding="utf-8"))
        self.assertIn("could not write", self.weft("graph", "layer.wir", "--svg", "nowhere/a.svg", status=1))

    def test_what_is_no_program_is_said(self):
        self.assertIn("no such file", self.weft("graph", "nothing", status=1).lower())
        self.assertIn("line 2, column", self.weft("graph", self.write("bad.wir", "func @main() -> () {\n  %0 = nonsense()\n}\n"), status=1))
        (self.work / "x.pt").write_bytes(b"PK\x03\x04" + bytes(60))
        self.assertIn("a ZIP archive", self.weft("graph", "x.pt", status=1))
        self.assertIn("several devices", self.weft("graph", self.write("two.wir", "module {partitions = 2}\n" + LAYER), status=1))


class Explain(Programs):
    def difference(self, before, now):
        self.write("a.wir", before)
        self.write("b.wir", now)
        return json.loads(self.weft("explain", "a.wir", "b.wir", "--json"))

    def test_each_kind_is_said_as_a_context_says_it(self):
        same = self.difference(LAYER, LAYER)
        self.assertEqual((True, "", "the programs are equal"), (same["equal"], same["reason"], same["text"]))
        # Positions are no part of a program.
        self.assertTrue(self.difference(LAYER, LAYER.replace("train.c:8", "other.c:80"))["equal"])
        constant = self.difference(LAYER, LAYER.replace("[1.5]", "[2.5]"))
        self.assertEqual(("constant", "constant at train.c:8 is 2.5, was 1.5; all else equal (5 nodes)", "train.c:8"),
                         tuple(constant[k] for k in ("reason", "text", "position")))
        self.assertIn("wf_mul_arg", constant["hint"])
        attribute = self.difference(LAYER, LAYER.replace("axis = 1", "axis = 0"))
        self.assertEqual(("attribute", "axis of softmax at train.c:9 is 0, was 1; all else equal (5 nodes)"),
                         (attribute["reason"], attribute["text"]))
        argument = self.difference(LAYER, LAYER.replace("64x", "32x").replace("[64, 256]", "[32, 256]"))
        self.assertEqual("argument", argument["reason"])
        self.assertIn("operand 0 of dot_general at train.c:7 is f32[32, 128], was f32[64, 128]", argument["text"])
        more = self.difference(LAYER, LAYER.replace("  return %6", "  %7 = tanh(%6) : tensor<64x256xf32> loc(\"train.c:10\")\n  return %7"))
        self.assertEqual(("operations", "tanh at train.c:10 is new (of 6 nodes)", "train.c:10"),
                         tuple(more[k] for k in ("reason", "text", "position")))
        other = self.difference(LAYER, chain(40))
        self.assertEqual("first", other["reason"])
        self.assertIn("less than half", other["text"])

    def test_roles_of_arguments_count(self):
        words = LAYER.replace("func @main(", "module {words = 1}\nfunc @main(%9: tensor<f32>{role}, ").replace("(%3) {shape", "(%9) {shape")
        found = self.difference(words.replace("{role}", ""), words.replace("{role}", " {word = 0}"))
        self.assertEqual("argument", found["reason"])
        self.assertIn("a number of the launch", found["text"])

    def test_inside_of_called_functions(self):
        self.write("a.mlir", STABLEHLO)
        self.write("b.mlir", STABLEHLO.replace("stablehlo.exponential", "stablehlo.tanh"))
        said = self.weft("explain", "a.mlir", "b.mlir")
        self.assertIn("tanh is new", said)
        self.write("c.mlir", STABLEHLO.replace("stablehlo.add %a, %a", "stablehlo.multiply %a, %a"))
        self.assertIn("less than half of the operations are the same (3 and 3 nodes)", self.weft("explain", "a.mlir", "c.mlir"))
        deep = STABLEHLO.replace("  %2 = stablehlo.exponential %1", "".join(
            f"  %t{i} = stablehlo.tanh %{'1' if i == 0 else f't{i - 1}'} : tensor<8xf32>\n" for i in range(9)) + "  %2 = stablehlo.exponential %t8")
        self.write("d.mlir", deep)
        self.write("e.mlir", deep.replace("stablehlo.add %a, %a", "stablehlo.multiply %a, %a"))
        self.assertIn("mul is new and 3 more differences (of 12 nodes)", self.weft("explain", "d.mlir", "e.mlir"))

    def test_entries_of_the_cache_with_what_else_differs(self):
        self.write("a.mlir", STABLEHLO)
        Graph.npy(self)
        for isa in ("portable", "avx2"):
            self.weft("run", "a.mlir", "--input", "x.npy", WEFT_ISA=isa, WEFT_CACHE_DIR=str(self.work / isa))
        entries = [next((self.work / isa).glob("v1/*/*.tce")) for isa in ("portable", "avx2")]
        said = json.loads(self.weft("explain", *entries, "--json"))
        self.assertTrue(said["equal"])
        self.assertTrue(any("portable" in part["before"] and "avx2" in part["now"] for part in said["parts"]), said)

    def test_misuse_and_what_cannot_be_read(self):
        self.write("a.wir", LAYER)
        self.assertEqual("weft explain: it takes two files; 'weft explain --help' says more\n", self.weft("explain", "a.wir", status=2))
        self.assertIn("No such file", self.weft("explain", "a.wir", "b.wir", status=1))
        (self.work / "b.wir").write_bytes(b"GGUF\3\0\0\0" + bytes(40))
        self.assertIn("holds no program: it is a GGUF file", self.weft("explain", "a.wir", "b.wir", status=1))
        self.write("b.wir", LAYER[:-40])
        self.assertRegex(self.weft("explain", "a.wir", "b.wir", status=1), r"'b\.wir': line \d+, column \d+: expected ")


class Text(Programs):
    def test_a_program_s_text_runs_again(self):
        self.write("a.mlir", STABLEHLO)
        Graph.npy(self)
        text = self.weft("run", "a.mlir", "--text", "ir")
        self.write("again.wir", text)
        self.assertEqual(self.weft("run", "a.mlir", "--input", "x.npy"), self.weft("run", "again.wir", "--input", "x.npy"))
        self.write("optimised.wir", self.weft("run", "a.mlir", "--text", "optimised"))
        self.assertEqual(self.weft("run", "a.mlir", "--input", "x.npy"), self.weft("run", "optimised.wir", "--input", "x.npy"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
