"""Writes a C++ program that replays tests/ffi/vectors.json (whose forms tests/ffi/vectors.py explains): the calls as they are, errors
and elements of tensors read by libweft.hpp."""
import json
import re

HEAD = """\
#include <atomic>
#include <cstring>
#include <deque>
#include <libweft.hpp>
#include <cstdio>

struct failed { std::string why; };
static std::string tmp;
static std::deque<std::string> texts;
static const char* text(std::string s) {
  for (std::size_t at; (at = s.find("{tmp}")) != s.npos;) s.replace(at, 5, tmp);
  return texts.emplace_back(std::move(s)).c_str();
}
static void must(bool holds, const char* what) { if (!holds) throw failed{what}; }
static void same(const std::string& got, const std::string& wanted, const char* what) {
  if (got != wanted) throw failed{std::string(what) + " is '" + got + "', not '" + wanted + "'"};
}
static void well(weft_error* raw, const char* call) {
  if (raw != nullptr) throw failed{std::string(call) + ": " + weft::error(raw).what()};
}
static void refused(weft_error* raw, weft_code code, const char* message, const char* call) {
  must(raw != nullptr, call);
  const weft::error error(raw);
  must(static_cast<int>(error.code()) == static_cast<int>(code), call);
  same(error.what(), text(message), call);
}
template <class T> std::vector<T> elements(weft_tensor* raw) {
  weft_tensor_retain(raw);
  const weft::tensor x = weft::tensor::adopt(nullptr, raw);
  if constexpr (std::same_as<T, std::uint8_t>) {
    if (x.dtype() == weft::boolean) {
      const std::vector<bool> bits = x.to_vector<bool>();
      return {bits.begin(), bits.end()};
    }
  }
  return x.to_vector<T>();
}
static std::string blob(weft_blob* b) { return {static_cast<const char*>(weft_blob_data(b)), weft_blob_size(b)}; }
template <class T> T address(std::uintptr_t a) { return reinterpret_cast<T>(a); }
template <int N> struct counter { static inline std::atomic<std::int64_t> calls{0}, user_data{0}; };
template <int N, class R, class... A> R counted(void* user_data, A...) {
  ++counter<N>::calls;
  counter<N>::user_data += static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(user_data));
  if constexpr (!std::is_void_v<R>) return R{};
}
template <int N, class F> struct of;
template <int N, class R, class... A> struct of<N, R (*)(void*, A...)> { static constexpr auto call = &counted<N, R, A...>; };
template <int N, class R, class... A> struct of<N, R (*)(void*, A...) noexcept> { static constexpr auto call = &counted<N, R, A...>; };
"""
ELEMENT = {"f32": "float", "f64": "double", "i32": "std::int32_t", "i64": "std::int64_t", "u8": "std::uint8_t"}


def literal(s):
    return '"' + "".join(c if 32 <= ord(c) < 127 and c not in '"\\?' else "".join("\\%03o" % b for b in c.encode()) for c in s) + '"'


class Vector:
    def __init__(self, entry, number, api):
        self.entry, self.number, self.api = entry, number, api
        self.lines, self.registers, self.count, self.counters = [], {}, 0, {}

    def fresh(self, stem):
        self.count += 1
        return "%s%d" % (stem, self.count)

    def register(self, name):
        base, _, at = name.partition("[")
        return self.registers[base][0] + ("[" + at if at else "")

    def fill(self, name, struct, fields):
        types = {f["name"]: f["type"] for f in self.api["structs"][struct]["fields"]}
        for field, value in fields.items():
            if isinstance(value, list):
                value = " | ".join(value)
            else:
                value = self.argument(value, types[field])
            self.lines.append("%s.%s = static_cast<%s>(%s);" % (name, field, "decltype(%s.%s)" % (name, field), value))

    def struct(self, a):
        name = self.fresh("s")
        init = a["struct"] + "_init" in self.api["functions"]
        self.lines.append("%s %s{};" % (a["struct"], name) + (" %s_init(&%s, sizeof %s);" % (a["struct"], name, name) if init else ""))
        self.fill(name, a["struct"], a["fields"])
        if "out" in a:
            self.registers[a["out"]] = (name, a["struct"])
        return "&" + name

    def argument(self, a, kind):
        """The C++ expression of an argument for a parameter of a type of C; what it needs stands before it."""
        if a is None:
            return "nullptr"
        if isinstance(a, (int, float)):
            return "static_cast<%s>(%r)" % (kind, a) if not isinstance(a, int) or abs(a) < 2**63 else "%dULL" % a
        if isinstance(a, str):
            return self.register(a[1:]) if a.startswith("$") else "static_cast<%s>(%s)" % (kind, a)
        if "struct" in a:
            return self.struct(a)
        if "text" in a:
            return "text(%s)" % literal(a["text"])
        if "callback" in a:
            number = self.counters.setdefault(a["callback"], self.number * 8 + len(self.counters))
            return "of<%d, %s>::call" % (number, a["type"])
        if "address" in a:
            return "address<%s>(%d)" % (a["type"] + "*" if "type" in a else kind, a["address"])
        if "u64" in a:
            return a["u64"] + "ULL"
        if "out" in a:
            name = self.fresh("r")
            self.lines.append("%s %s{};" % (a["type"], name))
            self.registers[a["out"]] = (name, a["type"])
            return "&" + name
        return self.array(a)

    def array(self, a):
        name = self.fresh("a")
        if "outs" in a:
            self.lines.append("%s %s[%d]{};" % (a["type"], name, max(a["count"], 1)))
            self.registers[a["outs"]] = (name, "%s[%d]" % (a["type"], a["count"]))
        elif "structs" in a:
            self.lines.append("%s %s[%d]{};" % (a["structs"], name, max(len(a["items"]), 1)))
            for i, item in enumerate(a["items"]):
                self.fill("%s[%d]" % (name, i), a["structs"], item)
        elif "handles" in a:
            values = [self.argument(h, a["type"] + "*") for h in a["handles"]]
            self.lines.append("%s* %s[] = {%s};" % (a["type"], name, ", ".join(values or ["nullptr"])))
        else:
            ((kind, values),) = a.items()
            self.lines.append("%s %s[] = {%s};" % (ELEMENT[kind], name, ", ".join(map(repr, values or [0]))))
        return name

    def returned(self, call, wanted, kind):
        if kind == "void":
            return "%s;" % call
        if isinstance(wanted, dict) and "reg" in wanted:
            name = self.fresh("r")
            self.registers[wanted["reg"]] = (name, kind)
            return "const auto %s = %s;" % (name, call)
        what = literal(call.partition("(")[0])
        if wanted is None:
            return "must(!%s, %s);" % (call, what)
        if isinstance(wanted, dict):
            return ("must(%s != nullptr, %s);" if "not_null" in wanted else "same(%%s, %s, %%s);" % literal(wanted.get("text", ""))) % (call, what)
        return "must(%s == static_cast<decltype(%s)>(%s), %s);" % (call, call, wanted, what)

    def expect(self, e):
        what = literal(json.dumps(e))
        if "counter" in e:
            counter = "counter<%d>" % self.counters[e["counter"]]
            if "at_least" in e:
                return "must(%s::calls >= %d, %s);" % (counter, e["at_least"], what)
            return "must(%s::calls == %d && %s::user_data == %d, %s);" % (counter, e["calls"], counter, e["user_data"], what)
        if "blob" in e:
            held = "blob(%s)" % self.register(e["blob"])
            return "must(%s.find(%s) != std::string::npos, %s);" % (held, literal(e["has"]), what) if "has" in e else "same(%s, %s, %s);" % (held, literal(e["is"]), what)
        if "tensor" in e:
            kind = ELEMENT[e["dtype"]]
            return "must(elements<%s>(%s) == std::vector<%s>{%s}, %s);" % (kind, self.register(e["tensor"]), kind, ", ".join(map(repr, e["is"])), what)
        held, kind = self.registers[e["reg"]]
        if "length" in e:
            length = held + "." + e["length"] if "field" in e else self.register(e["length"])
            pointer = "static_cast<const char*>(%s)" % (held + "." + e["field"] if "field" in e else held)
            return "same(std::string(%s, static_cast<std::size_t>(%s)), %s, %s);" % (pointer, length, literal(e["is"]), what)
        if "field" in e:
            held += "." + e["field"]
        if isinstance(e["is"], list):
            return "".join("must(%s[%d] == %r, %s);" % (held, i, v, what) for i, v in enumerate(e["is"]))
        wanted = e["is"]["u64"] + "ULL" if isinstance(e["is"], dict) else e["is"]
        if kind.endswith("*"):
            return "must((%s == nullptr) == (%s == 0), %s);" % (held, wanted, what)
        return "must(%s == static_cast<std::remove_cvref_t<decltype(%s)>>(%s), %s);" % (held, held, wanted, what)

    def text(self):
        for call in self.entry["calls"]:
            f = self.api["functions"][call["call"]]
            arguments = [self.argument(a, p["type"]) for a, p in zip(call["args"], f["params"])]
            made, name = "%s(%s)" % (call["call"], ", ".join(arguments)), literal(call["call"])
            if f["returns"].replace(" ", "") == "weft_error*" and "returns" not in call:
                error = call.get("error")
                made = "refused(%s, %s, %s, %s);" % (made, error["code"], literal(error["message"]), name) if error else "well(%s, %s);" % (made, name)
            else:
                made = self.returned(made, call.get("returns"), f["returns"])
            self.lines.append(made)
            self.lines += [self.expect(e) for e in call.get("expect", [])]
        return "static void vector_%d() {\n  %s\n}\n" % (self.number, "\n  ".join(self.lines))


def program(vectors_path, api_path):
    """(the program's text, how many vectors it has)"""
    with open(api_path, encoding="utf-8") as f:
        description = json.load(f)
    api = {"functions": {}, "structs": {s["name"]: s for s in description["structs"]}}
    for f in description["functions"]:
        kind = f["returns"]["type"] if isinstance(f["returns"], dict) else f["returns"]
        api["functions"][f["name"]] = {"params": f["params"], "returns": re.sub(r"\s*\*", "*", kind or "void")}
    with open(vectors_path, encoding="utf-8") as f:
        vectors = json.load(f)["vectors"]
    text = HEAD + "".join(Vector(v, i, api).text() for i, v in enumerate(vectors))
    text += "int main(int, char** argv) {\n  tmp = argv[1];\n  int failures = 0;\n"
    for i, v in enumerate(vectors):
        text += "  try { vector_%d(); } catch (const failed& f) { ++failures; std::printf(\"%%s: %%s\\n\", %s, f.why.c_str()); } catch (const weft::error& e) { ++failures; std::printf(\"%%s: %%s\\n\", %s, e.what()); }\n" % (i, literal(v["name"]), literal(v["name"]))
    return text + "  std::printf(\"%d vectors, %%d failed\\n\", failures);\n  return failures == 0 ? 0 : 1;\n}\n" % len(vectors), len(vectors)
