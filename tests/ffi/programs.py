"""What the replayers of compiled languages need in their own language: for Go, constants and fields by name; for Rust, which has no
reflection, the vectors themselves; for both a program that prints the layout."""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.environ["WEFT_SOURCE"], "bindings", "generate"))
from generator.ffi import go, rust  # noqa: E402

ELEMENTS = {"f32": "f32", "f64": "f64", "i32": "i32", "i64": "i64", "u8": "u8"}


def quoted(text):
    return json.dumps(text, ensure_ascii=False)


def named(lines):
    """(line without its number, kind, struct or type or constant, field) of the layout."""
    for line in lines:
        head = line.rsplit(" ", 1)[0]
        kind, name = head.split()[0], head.split()[-1]
        yield head, kind, *(name.split(".") if "." in name else (name, ""))


def go_tables(api, lines):
    text = "package main\n\nimport (\n\t\"fmt\"\n\t\"unsafe\"\n\n\tweft \"weft_ffi\"\n)\n\n"
    lines = list(named(lines))
    values = [name for _, kind, name, _ in lines if kind == "value"]
    # -1 is no constant of an unsigned type, so each passes through a function.
    text += "func bits[T ~uint32 | ~int32 | ~uint64 | ~int64 | ~uintptr](x T) uint64 { return uint64(int64(x)) }\n\n"
    text += "var Constants = map[string]uint64{\n" + "".join('\t"%s": bits(weft.%s),\n' % (v, v) for v in values) + "}\n\n"
    fields = sorted({f["name"] for s in api.structs for f in s["fields"]})
    text += "var FieldNames = map[string]string{\n" + "".join('\t"%s": "%s",\n' % (f, go.camel(f)) for f in fields) + "}\n\n"
    text += "func Layout() {\n"
    types = sorted({name for _, kind, name, _ in lines if kind != "value"})
    text += "".join("\tvar x%d weft.%s\n" % (i, go.camel(t)) for i, t in enumerate(types))
    for head, kind, name, field in lines:
        number = {"size": lambda: "unsafe.Sizeof(x%d)" % types.index(name), "value": lambda: "int64(Constants[%s])" % quoted(name),
                  "offset": lambda: "unsafe.Offsetof(x%d.%s)" % (types.index(name), go.camel(field))}[kind]()
        text += "\tfmt.Println(%s, %s)\n" % (quoted(head), number)
    return text + "}\n"


RUST_HEAD = """\
#![allow(unused_unsafe, unused_mut, unused_variables, unused_assignments)]
use std::ffi::{CStr, CString};
use std::fmt::Debug;
use std::mem::{size_of, zeroed};
use std::os::raw::{c_char, c_void};
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use weft_ffi::*;

static COUNTS: [[AtomicI64; 2]; 2] = [[AtomicI64::new(0), AtomicI64::new(0)], [AtomicI64::new(0), AtomicI64::new(0)]];
fn count(at: usize, user_data: *mut c_void) {
    COUNTS[at][0].fetch_add(1, SeqCst);
    COUNTS[at][1].fetch_add(user_data as i64, SeqCst);
}
unsafe extern "C" fn released(user_data: *mut c_void) { count(0, user_data) }
unsafe extern "C" fn log(user_data: *mut c_void, _: weft_log_level, _: *const c_char, _: usize) { count(1, user_data) }
fn counts(at: usize) -> (i64, i64) { (COUNTS[at][0].load(SeqCst), COUNTS[at][1].load(SeqCst)) }

fn must<T: PartialEq + Debug>(what: &str, wanted: T, got: T) -> Result<(), String> {
    if wanted == got { Ok(()) } else { Err(format!("{what} is {got:?}, not {wanted:?}")) }
}
unsafe fn text(data: *const c_char, length: usize) -> String {
    String::from_utf8_lossy(std::slice::from_raw_parts(data as *const u8, length)).into_owned()
}
unsafe fn error(folder: &str, wanted: Option<(weft_code, &str)>, given: *mut weft_error) -> Result<(), String> {
    let mut said = None;
    if !given.is_null() {
        let mut length = 0usize;
        let data = weft_error_message(given, &mut length);
        said = Some((weft_error_code(given), text(data, length).replace(folder, "{tmp}")));
        weft_error_release(given);
    }
    must("error", wanted.map(|(code, message)| (code, message.to_string())), said)
}
unsafe fn blob(held: *const weft_blob) -> String { text(weft_blob_data(held) as *const c_char, weft_blob_size(held)) }
unsafe fn elements<T: Clone>(held: *mut weft_tensor, zero: T) -> Result<Vec<T>, String> {
    let mut size = 0u64;
    error("", None, weft_tensor_size(held, &mut size))?;
    let mut data = vec![zero; size as usize / size_of::<T>()];
    error("", None, weft_tensor_to_host(held, data.as_mut_ptr() as *mut c_void, size as usize))?;
    Ok(data)
}
macro_rules! offset {
    ($t:ty, $f:ident) => {{
        let made = std::mem::MaybeUninit::<$t>::uninit();
        let at = made.as_ptr();
        unsafe { std::ptr::addr_of!((*at).$f) as usize - at as usize }
    }};
}

"""
COUNTERS = ("released", "log")


class RustVector:
    """One vector as a function; `lines` are its statements."""

    def __init__(self, api):
        self.api, self.lines, self.made = api, [], 0

    def let(self, value, kind=None, mutable=False):
        self.made += 1
        self.lines.append("let %st%d%s = %s;" % ("mut " * mutable, self.made, ": " + kind if kind else "", value))
        return "t%d" % self.made

    def rtype(self, ctype):
        if ctype not in self.api.types:  # a pointer that only a register has
            return "*mut %s" % self.rtype(ctype[:-1]) if ctype.endswith("*") else rust.PLAIN[ctype]
        return rust.rtype(self.api, ctype)

    def number(self, x, kind):
        if isinstance(x, dict):
            return "%su64 as %s" % (x["u64"], kind)
        if kind in ("f32", "f64"):
            return "%r as %s" % (float(x), kind)
        return "%s as %s" % (x if isinstance(x, str) else "(%di64)" % x, kind)

    def register(self, name):
        return "r_" + name

    def fill(self, target, struct, fields):
        types = {f["name"]: f["type"] for f in self.api.struct[struct]["fields"]}
        for name, value in fields.items():
            if isinstance(value, list):
                value = " | ".join(value)
            else:
                value = self.argument(value, types[name])
            self.lines.append("%s.%s = %s;" % (target, rust.safe(name), value))

    def struct(self, a):
        name = self.register(a["out"]) if "out" in a else self.let("zeroed()", a["struct"], True)
        if "out" in a:
            self.lines.append("let mut %s: %s = zeroed();" % (name, a["struct"]))
        init = self.api.struct[a["struct"]]["init"]
        if init:
            self.lines.append("%s(&mut %s as *mut _ as *mut c_void, size_of::<%s>());" % (init, name, a["struct"]))
        self.fill(name, a["struct"], a["fields"])
        return "&mut %s as *mut _ as _" % name

    def memory(self, a):
        """A form that is a pointer to something that is made here."""
        if "struct" in a:
            return self.struct(a)
        if "structs" in a:
            name = self.let("zeroed()", "[%s; %d]" % (a["structs"], len(a["items"])), True)
            for i, item in enumerate(a["items"]):
                self.fill("%s[%d]" % (name, i), a["structs"], item)
            return "%s.as_ptr() as _" % name
        if "text" in a:
            return "%s.as_ptr() as _" % self.let("CString::new(%s.replace(\"{tmp}\", folder)).unwrap()" % quoted(a["text"]))
        if "handles" in a:
            ctype = a["type"] + "*"
            items = ", ".join(self.argument(h, ctype) for h in a["handles"])
            return "%s.as_ptr() as _" % self.let("[%s]" % items, "[%s; %d]" % (self.rtype(ctype), len(a["handles"])))
        if "out" in a:
            self.lines.append("let mut %s: %s = zeroed();" % (self.register(a["out"]), self.rtype(a["type"])))
            return "&mut " + self.register(a["out"])
        if "outs" in a:
            self.lines.append("let mut %s: [%s; %d] = zeroed();" % (self.register(a["outs"]), self.rtype(a["type"]), a["count"]))
            return self.register(a["outs"]) + ".as_mut_ptr()"
        (kind, values), = a.items()
        items = ", ".join(self.number(x, kind) for x in values)
        return "%s.as_ptr() as _" % self.let("[%s]" % items, "[%s; %d]" % (ELEMENTS[kind], len(values)))

    def argument(self, a, ctype):
        kind = self.rtype(ctype)
        if a is None:
            return "None" if self.api.types[ctype]["kind"] == "callback" else "std::ptr::null%s()" % ("_mut" * kind.startswith("*mut"))
        if isinstance(a, str) and a.startswith("$"):
            return self.register(a[1:]) + (" as _" if kind.startswith("*") else "")
        if isinstance(a, (int, float, str)) or "u64" in a:
            return self.number(a, kind)
        if "callback" in a:
            return "Some(%s)" % a["callback"]
        return "%dusize as _" % a["address"] if "address" in a else self.memory(a)

    def expect(self, e):
        if "counter" in e:
            at = COUNTERS.index(e["counter"])
            if "at_least" in e:
                return 'must("calls", true, counts(%d).0 >= %d)?;' % (at, e["at_least"])
            return 'must("calls", (%d, %d), counts(%d))?;' % (e["calls"], e["user_data"], at)
        if "blob" in e:
            text = "blob(%s)" % self.register(e["blob"])
            if "has" in e:
                return 'must("the blob has it", true, %s.contains(%s))?;' % (text, quoted(e["has"]))
            return 'must("the blob", %s.to_string(), %s)?;' % (quoted(e["is"]), text)
        if "tensor" in e:
            items = ", ".join(self.number(x, e["dtype"]) for x in e["is"])
            return 'must("tensor %s", vec![%s], elements(%s, %s)?)?;' % (e["tensor"], items, self.register(e["tensor"]), self.number(0, e["dtype"]))
        held = self.register(e["reg"]) + ("." + e["field"] if "field" in e else "")
        if "length" in e:
            length = "%s.%s" % (self.register(e["reg"]), e["length"]) if "field" in e else self.register(e["length"])
            return 'must("%s", %s.to_string(), text(%s as *const c_char, %s as usize))?;' % (e["reg"], quoted(e["is"]), held, length)
        wanted = e["is"]
        if isinstance(wanted, list):
            return 'must("%s", vec![%s], %s.to_vec())?;' % (e["reg"], ", ".join(map(str, wanted)), held)
        if wanted == 0:
            return 'must("%s", true, %s as usize == 0)?;' % (e["reg"], held) if e["reg"] in "xyz" else 'must("%s", 0, %s)?;' % (e["reg"], held)
        return 'must("%s", %s, %s)?;' % (e["reg"], self.number(wanted, "_") if not isinstance(wanted, float) else repr(wanted), held)

    def call(self, c):
        function = self.api.function[c["call"]]
        arguments = [self.argument(a, p["type"]) for a, p in zip(c["args"], function["params"])]
        made = "%s(%s)" % (c["call"], ", ".join(arguments))
        returns = c.get("returns")
        if "returns" not in c and function["returns"]["role"] == "error":
            wanted = "Some((%s, %s))" % (c["error"]["code"], quoted(c["error"]["message"])) if "error" in c else "None"
            self.lines.append("error(folder, %s, %s)?;" % (wanted, made))
        elif isinstance(returns, dict) and "reg" in returns:
            self.lines.append("let %s = %s;" % (self.register(returns["reg"]), made))
        elif "returns" in c and (returns is None or isinstance(returns, dict) and "not_null" in returns):
            nothing = "is_none()" if function["returns"]["role"] == "function" else "is_null()"
            self.lines.append('must("what is returned is nothing", %s, %s.%s)?;' % (str(returns is None).lower(), made, nothing))
        elif isinstance(returns, dict):
            self.lines.append('must("what is returned", %s, CStr::from_ptr(%s).to_str().unwrap())?;' % (quoted(returns["text"]), made))
        elif "returns" in c:
            self.lines.append('must("what is returned", %s, %s)?;' % (returns, made))
        else:
            self.lines.append(made + ";")
        self.lines += [self.expect(e) for e in c.get("expect", [])]


def rust_program(api, vectors, lines):
    text, table = RUST_HEAD, ""
    for i, entry in enumerate(vectors):
        vector = RustVector(api)
        for c in entry["calls"]:
            # Which call failed is said by its text.
            at = len(vector.lines)
            vector.call(c)
            vector.lines[at:] = [line.replace(")?;", ').map_err(|e| format!("%s: {e}"))?;' % c["call"]) if line.startswith(("error(", "must("))
                                 else line for line in vector.lines[at:]]
        text += "unsafe fn v%d(folder: &str) -> Result<(), String> {\n%s    Ok(())\n}\n\n" % (i, "".join("    %s\n" % x for x in vector.lines))
        table += "        (%s, v%d),\n" % (quoted(entry["name"]), i)
    layout = ""
    for head, kind, name, field in named(lines):
        number = {"size": "size_of::<%s>()" % name, "offset": "offset!(%s, %s)" % (name, rust.safe(field)), "value": name}[kind]
        layout += "        (%s, %s as i64),\n" % (quoted(head), number)
    return text + """fn layout() {
    let all: &[(&str, i64)] = &[
%s    ];
    for (what, n) in all { println!("{what} {n}") }
}

fn main() {
    let folder = match std::env::args().nth(1) { None => return layout(), Some(x) => x };
    let all: &[(&str, unsafe fn(&str) -> Result<(), String>)] = &[
%s    ];
    for (name, run) in all {
        for c in &COUNTS { c[0].store(0, SeqCst); c[1].store(0, SeqCst); }
        match unsafe { run(&folder) } { Ok(()) => println!("ok {name}"), Err(e) => println!("failed {name}: {e}") }
    }
}
""" % (layout, table)
