"""A C++ program that calls operations by their names on the samples of weft_api.json, and compares each result's type, shape and bits
with those that weft_op_apply gives by the name of C: what a generated function passes on is what was meant."""
import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.environ["WEFT_SOURCE"], "bindings", "generate"))
from generator.cpp import safe  # noqa: E402

HEAD = r"""// Made by samples.py for one run of the test.
#include <cstring>

#include "check.hpp"

namespace {

std::uint32_t state = 1;
double drawn(double low, double high) {
  state = state * 1664525u + 1013904223u;
  return low + (high - low) * (static_cast<double>(state >> 8) / 16777216.0);
}
weft::tensor input(const weft::context& ctx, weft::dtype type, const weft::shape& sizes, double low, double high, bool whole) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  std::vector<double> values(static_cast<std::size_t>(count));
  for (double& value : values) value = whole ? static_cast<double>(static_cast<std::int64_t>(drawn(low, high - 0.001))) : drawn(low, high);
  return weft::convert(weft::tensor(ctx, values, sizes), type);
}
// Makes the diagonal outweigh its row.
weft::tensor dominant(const weft::context& ctx, const weft::tensor& x) {
  const std::int64_t n = x.shape()[x.rank() - 1];
  const weft::tensor row = weft::iota(ctx, {n, n}, 0), column = weft::iota(ctx, {n, n}, 1);
  return x + weft::convert(row == column, x.dtype()) * static_cast<double>(4 * n);
}
weft_attr attribute(const char* name, weft_value_type type, std::int64_t i, double d, const void* data, std::size_t count) {
  return {name, WEFT_STRLEN, type, 0, i, d, data, count};
}
std::vector<weft::tensor> by_name(const weft::context& ctx, const char* name, std::initializer_list<weft::tensor> inputs, std::initializer_list<weft_attr> attrs) {
  const weft::tensor_refs in(inputs);
  weft_tensor* out[8] = {};
  std::size_t count = 0;
  weft_error* failed = weft_op_apply(ctx.get(), name, WEFT_STRLEN, in.data(), in.size(), attrs.begin(), attrs.size(), out, 8, &count);
  if (failed != nullptr) throw weft::error(failed);
  std::vector<weft::tensor> all;
  for (std::size_t i = 0; i < count; ++i) all.push_back(weft::tensor::adopt(ctx.get(), out[i]));
  return all;
}
std::vector<unsigned char> bytes(const weft::tensor& x) {
  std::vector<unsigned char> all(x.bytes());
  if (weft_error* failed = weft_tensor_to_host(x.get(), all.data(), all.size())) throw weft::error(failed);
  return all;
}
void same(const char* what, const std::vector<weft::tensor>& mine, const std::vector<weft::tensor>& theirs) {
  bool well = mine.size() == theirs.size();
  for (std::size_t i = 0; well && i < mine.size(); ++i) well = mine[i].type() == theirs[i].type() && bytes(mine[i]) == bytes(theirs[i]);
  if (well) return;
  std::printf("%s differs\n", what);
  ++failures;
}
template <class Cpp, class C>
void compared(const weft::context& ctx, const char* what, Cpp mine, C theirs) {
  try {
    const weft::random_state before = ctx.random();
    const auto first = mine();
    ctx.set_random(before);
    same(what, first, theirs());
  } catch (const weft::error& failed) {
    std::printf("%s: %s\n", what, failed.what());
    ++failures;
  }
}

"""
TOKEN = re.compile(r"^(\w+)\[([\d,]*)\](?:<(?:(-?\d+):(-?\d+)|dominant)>)?$")


def dtype(name):
    return "weft::boolean" if name == "bool" else "weft::" + name


def text_of(value, a):
    """An attribute's value for C++ and, as a weft_attr, for weft_op_apply."""
    name, kind = a["name"], a["type"]
    if kind == "ints":
        numbers = value.strip("[]")
        listed = "{%s}" % numbers if numbers else "weft::ints(std::vector<int>())"
        data = "std::array<std::int64_t, %d>{%s}.data()" % (max(1, len(numbers.split(","))), numbers)
        return listed, 'attribute("%s", WEFT_VALUE_INTS, 0, 0, %s, %d)' % (name, data, len(numbers.split(",")) if numbers else 0)
    if kind == "string":
        return '"%s"' % value, 'attribute("%s", WEFT_VALUE_TEXT, 0, 0, "%s", %d)' % (name, value, len(value))
    if kind == "bool":
        return value, 'attribute("%s", WEFT_VALUE_BOOL, %s, 0, nullptr, 0)' % (name, value)
    if kind == "dtype":
        return dtype(value), 'attribute("%s", WEFT_VALUE_DTYPE, static_cast<std::int64_t>(%s), 0, nullptr, 0)' % (name, dtype(value))
    if kind == "enum":
        return "weft::%s::%s" % (a["enum"][5:], safe(value.lower())), 'attribute("%s", WEFT_VALUE_ENUM, 0, 0, "%s", %d)' % (name, value, len(value))
    if kind == "int":
        return "std::int64_t{%s}" % value, 'attribute("%s", WEFT_VALUE_INT, %s, 0, nullptr, 0)' % (name, value)
    assert kind == "double", a
    return "double{%s}" % value, 'attribute("%s", WEFT_VALUE_DOUBLE, 0, %s, nullptr, 0)' % (name, value)


def operand(token, group, sample):
    kind, sizes, low, high = TOKEN.match(token).groups()
    kind = group if kind == "T" else kind
    whole = low is not None or not kind.startswith(("f", "b", "c"))
    low, high = (low, high) if low is not None else (sample["low"], sample["high"])
    made = "input(ctx, %s, {%s}, %s, %s, %s)" % (dtype(kind), sizes, low, high, "true" if whole else "false")
    return "dominant(ctx, %s)" % made if token.endswith("<dominant>") else made


def block(op, sample, number):
    """One sample as a function; None where the sample says what this reader does not know."""
    tokens = sample["call"].split()
    positions = [t for t in tokens if "=" not in t]
    given = dict(t.split("=", 1) for t in tokens if "=" in t)
    if op["supplied"]:
        positions = positions[:len(positions) - op["supplied"]]
    if any(t != "none" and not TOKEN.match(t) for t in positions) or set(given) - {a["name"] for a in op["attributes"]}:
        return None
    last = len(op["operands"]) - 1
    takes = [set(op["operands"][min(i, last)]["dtypes"]) for i, t in enumerate(positions) if t.startswith("T[")]
    group = next(d for d in ("f32", "i32", "bool", "c64") if all(d in dtypes for dtypes in takes))
    lines, names = [], []
    for i, token in enumerate(positions):
        lines.append("  const weft::tensor x%d = %s;" % (i, "weft::tensor()" if token == "none" else operand(token, group, sample)))
        names.append("x%d" % i)
    arguments, rest = [], list(names)
    for i, x in enumerate(op["operands"]):
        if x["variadic"]:
            taken, rest = rest[:len(rest) - (len(op["operands"]) - 1 - i)], rest[len(rest) - (len(op["operands"]) - 1 - i):]
            arguments.append("std::vector<weft::tensor>{%s}" % ", ".join(taken))
        elif rest:
            arguments.append(rest.pop(0))
        else:
            arguments.append("weft::tensor()")
    if not op["operands"]:
        arguments.append("ctx")
    options, attrs = [], []
    for a in op["attributes"]:
        if a["name"] not in given:
            if a["required"]:
                return None
            continue
        mine, theirs = text_of(given[a["name"]], a)
        attrs.append(theirs)
        if a["required"]:
            arguments.append("weft::ints(%s)" % mine.strip("{}") if mine.startswith("{") else mine)
        else:
            options.append(".%s = %s" % (safe(a["name"]), mine))
    if op["opts"]:
        arguments.append("weft::%s_options{%s}" % (op["c_name"], ", ".join(options)))
    name = safe(op["c_name"])
    call = "weft::%s(%s)" % (name, ", ".join(arguments))
    if len(op["results"]) > 1:
        mine = "const auto r = %s;\n        return std::vector<weft::tensor>{%s};" % (call, ", ".join("r." + safe(r["name"]) for r in op["results"]))
    else:
        mine = "return std::vector<weft::tensor>{%s};" % call
    body = "\n".join(lines)
    return """void sample%d(const weft::context& ctx) {
%s
  compared(
      ctx, "%s %s", [&] {
        %s
      },
      [&] { return by_name(ctx, "%s", {%s}, {%s}); });
}
""" % (number, body, op["c_name"], sample["call"], mine, op["c_name"], ", ".join(names), ", ".join(attrs))


def program(path):
    """(text, operations that have a sample in it, operations without one)."""
    with open(path, encoding="utf-8") as f:
        ops = [op for op in json.load(f)["operations"] if not op["with_options"]]
    text, count, covered, missing = HEAD, 0, [], []
    for op in ops:
        # The first, and the one that says most.
        samples = op["samples"][:1] + sorted(op["samples"][1:], key=lambda s: -s["call"].count("="))[:1]
        made = 0
        for sample in samples:
            one = block(op, sample, count)
            if one is not None:
                text, count, made = text + one, count + 1, made + 1
        (covered if made else missing).append(op["c_name"])
    text += "}  // namespace\n\nint main() {\n  const weft::context ctx({.platform = \"reference\", .cache_mode = \"off\"});\n"
    text += "".join("  sample%d(ctx);\n" % i for i in range(count))
    return text + '  std::printf("%d samples\\n", ' + str(count) + ");\n  return report();\n}\n", covered, missing
