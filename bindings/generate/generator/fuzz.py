"""tests/fuzz/abi_fuzz/generated: one call of every exported function with drawn arguments, and what the description says of it.

Arguments are drawn by tests/fuzz/abi_fuzz/fuzz.h by the types and names of parameters. What needs more than its types tell
(two arguments that must fit, callbacks, files) is SPECIAL: written by hand in special.cc and special_functions.cc.
"""
import re
import struct

from .model import declarator

FOLDER = "tests/fuzz/abi_fuzz/generated/"
PART = 100  # functions per file

SPECIAL = """weft_error_new weft_error_new_with_data weft_context_create weft_context_release weft_context_set_log weft_tensor_from_host weft_collective_permute weft_checkpoint_reader_load_box weft_checkpoint_reader_load_many weft_tensor_from_host_sharded weft_tensor_to_host weft_tensor_to_host_box
weft_tensor_from_dlpack weft_tensor_from_dlpack_legacy weft_tensor_to_dlpack weft_tensor_to_dlpack_legacy weft_scope_mark
weft_scope_adopt weft_scope_keep weft_scope_end weft_op_apply weft_op_apply_on weft_op_apply_in
weft_op_apply_many weft_op_vjp weft_split weft_grad weft_sgd_create weft_adam_create weft_adamw_create weft_optimizer_step
weft_sgd_create_groups weft_adam_create_groups weft_adamw_create_groups weft_optimizer_create weft_optimizer_step_groups weft_optimizer_step_if_finite weft_optimizer_step_clipped weft_clip_by_global_norm
weft_optimizer_load weft_function_begin weft_function_end weft_function_abandon weft_function_trace weft_function_call weft_while weft_for
weft_scan weft_if weft_case weft_per_device weft_function_run weft_function_compile weft_function_stats weft_function_vmap
weft_function_grad weft_function_vjp weft_function_jvp weft_function_custom_gradient
weft_custom_register weft_custom_register_symbol weft_custom_apply weft_position_mark_stack weft_program_report weft_job_join weft_job_find
weft_dataset_create weft_dataset_from_memory weft_sampler_create weft_loader_create weft_job_reduce
weft_checkpoint_save_to weft_checkpoint_load_from weft_checkpoint_reader_open_from""".split()

# What texts are drawn from, by parameter; the function's own line beats the parameter's.
TEXTS = {"key": "Words::kKeys", "message": "Words::kKeys", "name": "Words::kKeys", "value": "Words::kKeys", "path": "Words::kFiles", "to": "Words::kFiles", "file": "Words::kFiles", "axes": "Words::kAxes", "axis": "Words::kSpecs", "input_specs": "Words::kSpecs", "output_specs": "Words::kSpecs", "spec": "Words::kSpecs"}
TEXTS_OF = {
    ("weft_function_from_stablehlo", "text"): "Words::kPrograms", ("weft_function_from_text", "text"): "Words::kPrograms",
    ("weft_program_compare", "before_path"): "Words::kProgramFiles", ("weft_program_compare", "now_path"): "Words::kProgramFiles",
    ("weft_checkpoint_reader_open", "path"): "Words::kReadFiles",
    ("weft_function_save", "path"): "Words::kProgramFiles", ("weft_function_load", "path"): "Words::kProgramFiles",
    ("weft_get_proc", "name"): "Words::kFunctions", ("weft_error_payload", "key"): "Words::kPayloads",
    ("weft_context_option", "name"): "Words::kOptions", ("weft_context_option_source", "name"): "Words::kOptions",
    ("weft_option_detail", "name"): "Words::kOptions", ("weft_option_detail", "key"): "Words::kDetails",
    ("weft_device_by_name", "name"): "Words::kDevices", ("weft_metric_get", "name"): "Words::kMetrics", ("weft_metric_samples", "name"): "Words::kMetrics",
    ("weft_metric_add", "name"): "Words::kMetrics", ("weft_metric_record", "name"): "Words::kMetrics", ("weft_span_begin", "name"): "Words::kMetrics",
    ("weft_tree_find", "path"): "Words::kKeys", ("weft_optimizer_load_from", "path"): "Words::kKeys", ("weft_checkpoint_reader_load", "path"): "Words::kKeys", ("weft_checkpoint_reader_find", "path"): "Words::kKeys",
    ("weft_checkpoint_reader_load_as", "path"): "Words::kKeys", ("weft_checkpoint_reader_load_sharded", "path"): "Words::kKeys", ("weft_checkpoint_reader_open_with", "path"): "Words::kReadFiles",
    ("weft_checkpoint_convert", "path"): "Words::kReadFiles", ("weft_checkpoint_salvage", "path"): "Words::kReadFiles", ("weft_file_describe", "path"): "Words::kReadFiles",
}
# Chosen once in so many times that it could have been: what waits, writes files or makes threads.
RARELY = {
    "weft_context_create": 200, "weft_context_release": 200, "weft_context_retain": 50, "weft_checkpoint_save": 40, "weft_checkpoint_save_to": 3,
    "weft_checkpoint_load": 10, "weft_checkpoint_reader_open": 3, "weft_checkpoint_reader_open_with": 3, "weft_checkpoint_convert": 40, "weft_checkpoint_salvage": 40, "weft_file_describe": 5, "weft_cache_list": 10, "weft_cache_explain": 10, "weft_cache_prune": 20, "weft_cache_flush": 20, "weft_cancel": 20, "weft_idx_read": 10,
    "weft_metrics_report": 5, "weft_metrics_json": 5, "weft_metrics_render": 5, "weft_metric_list": 5, "weft_metrics_clear": 20, "weft_program_list": 5, "weft_program_compare": 10, "weft_memory_report": 5, "weft_trace_start": 20, "weft_trace_stop": 20, "weft_trace_write": 40, "weft_trace_report": 20, "weft_compiles_settled": 20, "weft_program_text": 5, "weft_wait_any": 5, "weft_event_fd": 5,
}
TYPES = {"float": 1, "signed integer": 2, "unsigned integer": 4, "bool": 8, "complex": 16}  # classes of dtypes
NUMBERS = ("size_t", "uint32_t", "uint64_t", "int32_t", "int64_t")


def mask(api, errors):
    """Bits of the codes; all of them if any is declared."""
    codes = {v["name"][len("WEFT_"):]: v["value"] for e in api.enums if e["name"] == "weft_code" for v in e["values"]}
    bits = 0
    for e in errors["codes"]:
        bits |= 1 << codes[e]
    if errors["any"]:
        bits = 0xFFFFFFFF
    return "0x%Xu" % bits


def head(text):
    return ("// %s\n// Generated by bindings/generate from api.json and the operation table.\n"
            '#include "tests/fuzz/abi_fuzz/fuzz.h"\n\nnamespace weft::fuzz {\n\n' % text)


def base(ctype):
    return ctype.replace("const", "").replace("struct", "").replace("*", "").strip()


class Drawing:
    """The statements that draw one function's arguments."""

    def __init__(self, api, function):
        self.api = api
        self.f = function
        self.handles = {h["name"] for h in api.handles}
        self.enums = {e["name"]: e for e in api.enums}
        self.structs = {s["name"]: s for s in api.structs if not s["operation"]}
        self.lengths = {p["length"]["param"] for p in function["params"] if "length" in p} - {"out_length"}
        self.lines, self.after = [], []

    def say(self, line, *args):
        self.lines.append(line % args if args else line)

    def enum(self, name):
        """An enumerator, perhaps one that does not exist."""
        if name == "weft_dtype":
            return "static_cast<weft_dtype>(f.DTypeNumber())"
        values = [v["value"] for v in self.enums[name]["values"]]
        return "static_cast<%s>(f.OneOf({%s}))" % (name, ", ".join(map(str, values)))

    def scalar(self, ctype, name):
        if ctype in self.enums:
            return self.enum(ctype)
        if ctype == "double":
            return "f.Real()"
        assert ctype in NUMBERS, (self.f["name"], ctype, name)
        if name == "timeout_ns":
            return "f.Timeout()"
        return "static_cast<%s>(f.Integer())" % ctype

    def is_pointer(self, ctype):
        """Whether a field is one, or a callback: those stay NULL, and the counts of their entries 0."""
        return "*" in ctype or ctype in {c["name"] for c in self.api.callbacks}

    def options(self, p):
        """A versioned struct that goes in."""
        s, n = self.structs[base(p["type"])], p["name"]
        self.say("%s* const %s = f.Options<%s>();", s["name"], n, s["name"])
        self.say("if (%s != nullptr) {", n)
        lengths = {x["length"]["param"] for x in s["fields"] if "length" in x}
        for field in s["fields"][2:]:  # after struct_size and next
            at, ctype = "%s->%s" % (n, field["name"]), field["type"]
            if ctype == "const weft_setting*":
                self.say("  %s = f.Settings(Words::kKeys, &%s->%s);", at, n, field["length"]["param"])
            elif field["name"] not in lengths and not self.is_pointer(ctype):
                self.say("  %s = %s;", at, self.scalar(ctype, field["name"]))
        self.say("}")

    def incoming(self, p):
        ctype, n = p["type"], p["name"]
        name, nullable = base(ctype), "true" if p.get("nullable") else "false"
        if "length" in p:
            length = p["length"]["param"]
            if name == "char":
                words = TEXTS_OF.get((self.f["name"], n)) or TEXTS[n]
                self.say("const Text %s_ = f.DrawText(%s);", n, words)
                self.say("const char* const %s = %s_.data;", n, n)
                self.say("const size_t %s = %s_.length;", length, n)
            elif name in self.handles:
                self.say("size_t %s = 0;", length)
                self.say("%s* const* const %s = f.Handles<%s>(&%s);", name, n, name, length)
            else:
                assert name == "void", (self.f["name"], p)
                self.say("size_t %s = 0;", length)
                self.say("const void* const %s = f.Bytes(&%s);", n, length)
        elif name in self.handles:
            cast = "const " if ctype.startswith("const") else ""
            self.say("%s%s* const %s = f.Handle<%s>(%s);", cast, name, n, name, nullable)
        elif name in self.structs:
            assert self.structs[name]["versioned"], (self.f["name"], p)
            self.options(p)
        else:
            assert "*" not in ctype, (self.f["name"], p, "no way to draw this: make the function SPECIAL")
            self.say("const %s %s = %s;", ctype, n, self.scalar(ctype, n))

    def outgoing(self, p):
        n, pointee = p["name"], p["type"][:-1].strip()
        nullable = "true" if p.get("nullable") else "false"
        if "length" in p and not p["length"]["param"].startswith("out_"):
            length = p["length"]["param"]
            self.say("size_t %s = 0;", length)
            self.say("%s* const %s = f.OutArray<%s>(&%s);", pointee, n, pointee, length)
        elif pointee in self.structs and self.structs[pointee]["versioned"]:
            self.say("%s* const %s = f.OutStruct<%s>();", pointee, n, pointee)
        else:
            self.say("%s* const %s = f.Out<%s>(%s);", pointee, n, pointee, nullable)
        if p.get("ownership") == "own" and "full" in p.get("length", {}):
            self.after.append("for (size_t i = 0; i < *%s; ++i) f.Keep(&%s[i]);" % (p["length"]["full"], n))
        elif p.get("ownership") == "own":
            self.after.append("f.Keep(%s);" % n)

    def text(self):
        for p in self.f["params"]:
            if p["name"] in self.lengths:
                continue
            (self.outgoing if "direction" in p else self.incoming)(p)
        call = "%s(%s)" % (self.f["name"], ", ".join(p["name"] for p in self.f["params"]))
        return self.lines + ends(self.f["returns"]["type"], call, self.after)


def ends(returns, call, after):
    lines = ["f.Enter();"]
    if returns == "weft_error*":
        if after:
            return lines + ["if (!f.Leave(%s)) return;" % call] + after
        return lines + ["f.Leave(%s);" % call]
    if returns == "void":
        return lines + ["%s;" % call, "f.LeaveVoid();"]
    return lines + ["const auto result = %s;" % call, "f.LeaveWith(%s);" % (
        "result != nullptr" if "*" in returns or returns == "weft_proc" else "true"), "static_cast<void>(result);"]


def core_call(api, function):
    name, kind = function["name"], function["name"].rsplit("_", 1)[0]
    if kind in {h["name"] for h in api.handles} and name.endswith(("_retain", "_release")):
        return ["f.%s<%s>(%s);" % ("Retain" if name.endswith("_retain") else "Release", kind, name)]
    return Drawing(api, function).text()


def init_call(name):
    return ["size_t size = 0;", "void* const options = f.StructBytes(sizeof(%s), &size);" % name[:-len("_init")],
            "f.Enter();", "%s(options, size);" % name, "f.LeaveVoid();"]


def attr(a, target):
    """Statements that set one attribute of an operation; list and text set pointer and count."""
    i, kind = a["index"], a["type"]
    if kind in ("ints", "doubles", "string"):
        return ["f.%s(%d, &%s, &%s);" % ({"ints": "Ints", "doubles": "Doubles", "string": "TextAttr"}[kind], i, target(a["member"]), target(a["length"]))]
    draw = {"int": "f.IntAttr(%d)" % i, "double": "f.DoubleAttr(%d)" % i, "bool": "static_cast<int32_t>(f.BoolAttr(%d))" % i,
            "dtype": "static_cast<weft_dtype>(f.DTypeAttr(%d))" % i,
            "enum": "static_cast<%s>(f.EnumAttr(%d))" % (a.get("c_enum"), i)}[kind]
    return ["%s = %s;" % (target(a["member"]), draw)]


def op_call(op, index):
    lines = ["f.BeginOp(kOps[%d]);" % index, "weft_context* const ctx = f.Handle<weft_context>(false);"]
    args = ["ctx"]
    for a in op.attrs:
        if a["type"] == "enum":
            a["c_enum"] = op.attr_enum(a)
    for i, x in enumerate(op.operands):
        n = x["param"]
        if x["variadic"]:
            lines += ["size_t %s = 0;" % x["count"], "weft_tensor* const* const %s = f.Operands(%d, &%s);" % (n, i, x["count"])]
            args += [n, x["count"]]
        else:
            lines.append("weft_tensor* const %s = f.Operand(%d);" % (n, i))
            args.append(n)
    for a in op.required:
        for ctype, n in op.attr_fields(a):
            lines.append("%s = {};" % declarator(ctype, n))
            args.append(n)
        lines += attr(a, lambda n: n)
    if op.optional:
        lines += ["%s_opts* const opts = f.Options<%s_opts>();" % (op.function, op.function), "if (opts != nullptr) {"]
        for a in op.optional:
            lines.append("  if (f.Given(%d)) opts->present |= %s;" % (a["index"], op.present_bit(a)))
            pairs = {"ints", "doubles"}
            if a["type"] in pairs:
                lines.append("  f.%s(%d, &opts->%s, &opts->%s);" % (
                    "Ints" if a["type"] == "ints" else "Doubles", a["index"], a["member"], a["length"]))
            else:
                lines += ["  " + s for s in attr(a, lambda n: "opts->" + n)]
        lines += ["  opts->present ^= f.StrayBits(%d);" % len(op.optional), "}"]
        args.append("opts")
    outs = [op.out_name(i) for i in range(len(op.results))]
    lines += ["weft_tensor** const %s = f.Out<weft_tensor*>(false);" % n for n in outs]
    call = "%s(%s)" % (op.function, ", ".join(args + outs))
    return lines + ends("weft_error*", call, ["f.Keep(%s);" % n for n in outs])


def dtype(name, api):
    return next(d["value"] for d in api.dtypes if d["name"] == name)


class Samples:
    """All operations' samples as flat tables of operands, attributes and integers."""

    def __init__(self, api):
        self.api = api
        self.integers, self.operands, self.attrs, self.samples, self.ops = [], [], [], [], []

    def ints(self, values):
        at = len(self.integers)
        self.integers += values
        return at

    def operand(self, text):
        if text == "none":
            return "{0, -1, 0, 0, 0}"
        t = re.fullmatch(r"(\w+)\[([^\]]*)\](?:<(-?\d+):(-?\d+)>|<dominant>)?", text)
        assert t, text
        dims = [int(d) for d in t.group(2).split(",") if d]
        number = 0 if t.group(1) == "T" else dtype(t.group(1), self.api)
        return "{%d, %d, %d, %s, %s}" % (number, len(dims), self.ints(dims), t.group(3) or 0, t.group(4) or 0)

    def attr(self, op, name, text):
        a = next(x for x in op.attrs if x["name"] == name)
        at = count = i = 0
        d = "0.0"
        if a["type"] == "ints":
            values = [int(v) for v in text.strip("[]").split(",") if v]
            at, count = self.ints(values), len(values)
        elif a["type"] == "doubles":
            values = [struct.unpack("<q", struct.pack("<d", float(v)))[0] for v in text.strip("[]").split(",") if v]
            at, count = self.ints(values), len(values)
        elif a["type"] == "string":
            at, count = self.ints([ord(c) for c in text]), len(text)
        elif a["type"] == "double":
            d = repr(float(text)).replace("inf", "__builtin_inf()")
        elif a["type"] == "enum":
            i = a["enumerators"].index(text)
        elif a["type"] == "dtype":
            i = dtype(text, self.api)
        elif a["type"] == "bool":
            i = int(text == "true")
        else:
            i = int(text)
        return "{%d, %d, %d, %d, %s}" % (a["index"], at, count, i, d)

    def add(self, op):
        first = len(self.samples)
        for sample in op.o["samples"]:
            tokens = sample["call"].split()
            operands = [t for t in tokens if "=" not in t]
            # What the context supplies stands in samples and not in calls; it comes last.
            operands = operands[:len(operands) - op.o["supplied"]]
            at, attr_at = len(self.operands), len(self.attrs)
            self.operands += [self.operand(t) for t in operands]
            kinds = {a["name"]: a["type"] for a in op.attrs}  # lists of doubles have no table: the fuzzer leaves them out
            self.attrs += [self.attr(op, *t.split("=")) for t in tokens if "=" in t and kinds[t.split("=")[0]] != "doubles"]
            self.samples.append("{%d, %d, %d, %d, %r, %r}" % (at, len(operands), attr_at, len(self.attrs) - attr_at,
                                                              float(sample["low"]), float(sample["high"])))
        masks, classes = [], {d["name"]: d["class"] for d in self.api.dtypes}
        for x in op.operands:
            masks.append(str(sum(TYPES[t] for t in {classes[d] for d in x["dtypes"]})))
        kinds = ["AttrKind::k" + a["type"].capitalize() for a in op.attrs]
        counts = [str(len(a["enumerators"])) for a in op.attrs]
        names = ['"%s"' % a["name"] for a in op.attrs]
        self.ops.append('{"%s", "%s", %d, %d, %d, %d, %s, {%s}, {%s}, {%s}, {%s}}' % (
            op.c_name, op.name, first, len(self.samples) - first, len(op.operands), len(op.attrs),
            "true" if op.operands and op.operands[-1]["variadic"] else "false",
            ", ".join(masks), ", ".join(kinds), ", ".join(counts), ", ".join(names)))

    def table(self, ctype, name, rows, per_line=1):
        text = "extern const %s %s[] = {\n" % (ctype, name)
        for i in range(0, len(rows), per_line):
            text += "    %s,\n" % ", ".join(str(r) for r in rows[i:i + per_line])
        return text + "};\n\n"

    def text(self):
        return (self.table("int64_t", "kIntegers", self.integers, 24) + self.table("SampleOperand", "kSampleOperands", self.operands, 4) +
                self.table("SampleAttr", "kSampleAttrs", self.attrs, 4) + self.table("Sample", "kSamples", self.samples, 4) +
                self.table("OpInfo", "kOps", self.ops) + "extern const size_t kOpCount = %d;\n\n" % len(self.ops))


def calls(api):
    """Every exported function: (name, how its arguments are drawn or None if by hand, its line of the table)."""
    found = []

    def add(name, lines, errors, blocking, returns, op="nullptr", exclusive=False):
        found.append((name, lines, '{"%s", Call_%s, %s, %s, %s, %d, %s}' % (
            name, name, errors, "true" if blocking else "false", "true" if returns == "weft_error*" and not name.startswith("weft_error_new") else "false",
            RARELY.get(name, 1), op)))

    for f in api.functions:
        add(f["name"], None if f["name"] in SPECIAL else core_call(api, f), mask(api, f["errors"]), f["blocking"], f["returns"]["type"])
    for s in api.versioned_structs():
        add(s["name"] + "_init", init_call(s["name"] + "_init"), "0u", False, "void")
    for i, op in enumerate(api.ops):
        add(op.function, op_call(op, i), mask(api, op.entry["errors"]), False, "weft_error*", "&kOps[%d]" % i)
    unknown = set(SPECIAL + list(RARELY)) - {name for name, _, _ in found}
    assert not unknown, "not in the description: %s" % sorted(unknown)
    return found


def handles(api):
    """A header: the kinds of handles and how each is given back."""
    text = "// Kinds of handles. Generated by bindings/generate.\n#pragma once\n\n#include \"weft.h\"\n\nnamespace weft::fuzz {\n\n"
    names = [h["name"] for h in api.handles]
    kinds = ["k" + "".join(p.capitalize() for p in n.split("_")[1:]) for n in names]
    text += "enum class Kind : int { %s, kCount };\n\n" % ", ".join(kinds)
    text += "template <typename H>\nstruct KindOf;\n"
    released = {f["name"] for f in api.functions}
    cases = ""
    for name, kind in zip(names, kinds):
        text += "template <>\nstruct KindOf<%s> {\n  static constexpr Kind kKind = Kind::%s;\n};\n" % (name, kind)
        if name + "_release" in released:
            cases += "    case Kind::%s: return %s_release(reinterpret_cast<%s*>(handle));\n" % (kind, name, name)
        else:
            taker = next(f for f in api.functions if any(p.get("ownership") == "take" and base(p["type"]) == name for p in f["params"]))
            cases += "    case Kind::%s: return weft_error_release(%s(reinterpret_cast<%s*>(handle)));\n" % (kind, taker["name"], name)
    text += "\ninline void GiveBack(Kind kind, void* handle) {\n  switch (kind) {\n%s    case Kind::kCount: return;\n  }\n}\n" % cases
    return text + "\n}  // namespace weft::fuzz\n"


def files(api):
    samples = Samples(api)
    for op in api.ops:
        samples.add(op)
    everything = calls(api)
    table = head("What the description says of operations and functions.") + samples.text()
    table += "".join("void Call_%s(Fuzz& f);\n" % name for name, _, _ in everything)
    table += "\nextern const Function kFunctions[] = {\n%s};\n" % "".join("    %s,\n" % row for _, _, row in everything)
    table += "extern const size_t kFunctionCount = %d;\n\n}  // namespace weft::fuzz\n" % len(everything)
    out = {FOLDER + "table.cc": table, FOLDER + "handles.h": handles(api)}
    drawn = [(name, lines) for name, lines, _ in everything if lines is not None]
    for part in range((len(drawn) + PART - 1) // PART):
        text = head("Calls with drawn arguments.")
        for name, lines in drawn[part * PART:(part + 1) * PART]:
            text += "void Call_%s(Fuzz& f) {\n%s}\n\n" % (name, "".join("  %s\n" % line for line in lines))
        out[FOLDER + "calls_%d.cc" % part] = text + "}  // namespace weft::fuzz\n"
    return out
