"""Every function in the child of a fork, while threads of the parent work in the context and hold its locks: what takes a handle
of that context answers FAILED_PRECONDITION at once, releases and the end of the process go through, handles of no context and a
new context work. The calls are made from the description, so that no function is left out."""
import ctypes as c
import json
import mmap
import os
import signal
import sys
import tempfile
import threading
import time
import unittest

SOURCE = os.environ["WEFT_SOURCE"]
sys.path.insert(0, os.path.join(os.environ["WEFT_BUILD"], "generated", "bindings", "ffi", "python"))
import weft_ffi as w  # noqa: E402

LIB = w.load(os.environ["WEFT_LIB"])
with open(os.path.join(SOURCE, "include", "c_api", "weft_api.json"), encoding="utf-8") as description_file:
    DESCRIPTION = json.load(description_file)
FUNCTIONS = {f["name"]: f for f in DESCRIPTION["functions"]}
HANDLES = {h["name"]: h for h in DESCRIPTION["handles"]}
FREE = {"weft_error", "weft_blob", "weft_dataset", "weft_sampler"}  # handles that never are of a context
ENDS = {name for h in HANDLES.values() for name in (h["release"], h["retain"]) if name}
# In a new context these find out that it has no body and no such operation before they look at what else they got.
BEFORE = {"weft_function_end", "weft_custom_apply"}
# These return no error: what they promise in a child is looked at by hand.
OTHERWISE = {"weft_scope_mark", "weft_scope_adopt", "weft_cancel", "weft_job_preempt", "weft_span_begin", "weft_span_end"}
REFUSED = "used before fork"
FORKS = 12
SECONDS = 60  # for one child; a hang is for ever
ELEMENTS = 64


def base(ctype):
    return ctype.replace("const", "").replace("struct", "").replace("*", "").strip()


def given(function):
    """Its parameters that are handles, alone or in lists."""
    return [p for p in function["params"] if "direction" not in p and base(p["type"]) in HANDLES]


class Made:
    """A context that works, and a handle of every kind."""

    def __init__(self, folder):
        self.keep = []
        self.handles = {}
        self.folder = folder
        ctx = self.handle("weft_context", lambda out: LIB.weft_context_create(self.options(threads=b"2", cache_dir=folder.encode()), out))
        x = self.handle("weft_tensor", lambda out: self.from_host(ctx, out))
        w.check(LIB, LIB.weft_tensor_require_grad(x, 1))
        self.handle("weft_device", lambda out: LIB.weft_device_at(ctx, 0, out))
        self.handle("weft_mesh", lambda out: LIB.weft_mesh_create(ctx, None, 0, b"a=1", 3, out))
        self.handle("weft_event", lambda out: LIB.weft_sync(ctx, None, out))
        self.handle("weft_scope", lambda out: LIB.weft_scope_begin(ctx, out))
        self.handle("weft_optimizer", lambda out: LIB.weft_sgd_create(ctx, (w.weft_tensor * 1)(x), 1, None, out))
        tree = self.handle("weft_tree", LIB.weft_tree_create)
        w.check(LIB, LIB.weft_tree_add_tensor(tree, w.WEFT_TREE_ROOT, b"x", 1, x, None))
        path = os.path.join(folder, "fork.weft").encode()
        w.check(LIB, LIB.weft_checkpoint_save(ctx, path, len(path), tree, None, None))
        self.handle("weft_checkpoint_reader", lambda out: LIB.weft_checkpoint_reader_open(ctx, path, len(path), out))
        self.handle("weft_job", lambda out: LIB.weft_job_join(None, out))
        dataset = self.handle("weft_dataset", lambda out: LIB.weft_dataset_from_tensors((w.weft_tensor * 1)(x), 1, out))
        sampler = self.handle("weft_sampler", lambda out: LIB.weft_sampler_create(ELEMENTS, self.batches_of(4), out))
        loader = self.handle("weft_loader", lambda out: LIB.weft_loader_create(ctx, dataset, sampler, None, out))
        batch = w.weft_tensor()
        w.check(LIB, LIB.weft_loader_next(loader, c.byref(batch), 1, c.byref(c.c_size_t())))  # its threads run
        self.handle("weft_cache", lambda out: LIB.weft_context_cache(ctx, out))
        self.body, parameter = w.weft_context(), w.weft_tensor()
        w.check(LIB, LIB.weft_function_begin(ctx, None, 0, self.info(), 1, c.byref(self.body), c.byref(parameter)))
        body, y = w.weft_context(), w.weft_tensor()
        w.check(LIB, LIB.weft_function_begin(ctx, None, 0, self.info(), 1, c.byref(body), c.byref(parameter)))
        w.check(LIB, LIB.weft_relu(body, parameter, c.byref(y)))
        self.handle("weft_function", lambda out: LIB.weft_function_end(body, c.byref(y), 1, out))
        self.handle("weft_error", lambda out: LIB.weft_error_new(w.WEFT_ABORTED, b"mine", 4), comes=True)
        self.handle("weft_blob", lambda out: LIB.weft_context_option(ctx, b"mode", 4, out))
        self.plain_tree = w.weft_tree()
        w.check(LIB, LIB.weft_tree_create(c.byref(self.plain_tree)))

    def handle(self, kind, make, comes=False):
        made = getattr(w, kind)()
        if comes:
            made = make(None)
        else:
            w.check(LIB, make(c.byref(made)))
        self.handles[kind] = made
        return made

    def options(self, **settings):
        o = w.weft_context_options()
        LIB.weft_context_options_init(c.byref(o), c.sizeof(o))
        array = (w.weft_setting * len(settings))()
        for place, (name, value) in zip(array, settings.items()):
            place.name, place.name_length, place.value, place.value_length = name.encode(), len(name), value, len(value)
        o.settings, o.setting_count = array, len(settings)
        self.keep += [o, array]
        return c.byref(o)

    def batches_of(self, rows):
        o = w.weft_sampler_options()
        LIB.weft_sampler_options_init(c.byref(o), c.sizeof(o))
        o.batch = rows
        return c.byref(o)

    def from_host(self, ctx, out):
        data = (c.c_float * ELEMENTS)(*range(ELEMENTS))
        return LIB.weft_tensor_from_host(ctx, None, w.WEFT_F32, (c.c_int64 * 1)(ELEMENTS), 1, data, c.sizeof(data), out)

    def info(self):
        info = w.weft_tensor_info()
        info.dtype, info.rank, info.dims[0] = w.WEFT_F32, 1, ELEMENTS
        return c.pointer(info)

    def operation(self, count):
        """So many calls of one operation; the result of the last comes out."""
        calls, inputs = (w.weft_op_call * count)(), (w.weft_op_input * 1)()
        inputs[0].tensor = self.handles["weft_tensor"]
        for one in calls:
            one.name, one.name_length, one.inputs, one.input_count, one.drop = b"relu", 4, inputs, 1, 1
        calls[count - 1].drop = 0
        self.keep += [calls, inputs]
        return calls

    def argument(self, p, kind, handles, lists):
        """A value for a parameter: right where types tell what is right."""
        role, name = p["role"], base(p["type"])
        if "direction" in p:
            if role == "struct":
                struct = getattr(w, name)()
                if "struct_size" in dict(struct._fields_):
                    getattr(LIB, name + "_init")(c.byref(struct), c.sizeof(struct))
                return c.pointer(struct)
            room = (c.c_char * 4096)()
            self.keep.append(room)
            return c.cast(room, kind)
        if role == "handle":
            return handles[name]
        if role == "list":
            if name in HANDLES:
                return (getattr(w, name) * 1)(handles[name])
            if name == "weft_tensor_info":
                return self.info()
            return self.operation(1) if name == "weft_op_call" else (c.c_int64 * 1)() if name == "int64_t" else None
        if role in ("count", "capacity", "length"):
            return 1 if lists else w.WEFT_STRLEN
        if role == "text":
            return b"relu"
        if role in ("callback", "release"):
            called = kind() if p.get("nullable") else kind(lambda *_: None)
            self.keep.append(called)
            return called
        if role == "opaque":
            room = (c.c_uint64 * 64)()
            room[0] = 1  # of the form with a version: 1.0
            return c.cast(room, kind)
        if role in ("struct", "user_data", "bytes"):
            return None
        return 1.0 if kind is c.c_double else w.WEFT_F32 if name == "weft_dtype" else 0

    def arguments(self, function, handles):
        kinds = getattr(LIB, function["name"]).argtypes
        of = {p["name"]: p for p in function["params"]}
        out = []
        for p, kind in zip(function["params"], kinds):
            counted = [of[name] for name in p.get("of", [])] if p["role"] in ("count", "capacity", "length") else []
            lists = any(x["role"] == "list" for x in counted)
            absent = lists and all(x["role"] == "list" and base(x["type"]) in ("weft_attr", "int32_t") and "direction" not in x
                                   for x in counted)
            out.append(0 if absent else self.argument(p, kind, handles, lists))
        return out


class Child:
    """What runs behind the fork. Ends the process: with 0, or with the text of what is wrong in the shared memory."""

    def __init__(self, made, shared):
        self.made, self.shared = made, shared
        self.fresh = None
        self.wrong = []

    def says(self, text):
        data = text.encode()[:4000]
        self.shared[:4096] = data + bytes(4096 - len(data))

    def call(self, name, handles, what):
        """Code and text; None for functions that return no error."""
        self.says("%s %s hangs" % (name, what))
        result = getattr(LIB, name)(*self.made.arguments(FUNCTIONS[name], handles))
        self.made.keep = self.made.keep[:50]
        if FUNCTIONS[name]["returns"]["type"] != "weft_error*":
            return None
        if not result:
            return 0, ""
        said = LIB.weft_error_code(result), w.text(LIB.weft_error_message(result, None))
        LIB.weft_error_release(result)
        return said

    def expect(self, truth, text):
        if not truth:
            self.wrong.append(text)

    def refused(self, handles, what, wanted):
        for name, function in FUNCTIONS.items():
            kinds = {base(p["type"]) for p in given(function)} - FREE
            if not wanted(kinds) or name in ENDS or name in OTHERWISE or (handles["weft_context"] is self.fresh and name in BEFORE):
                continue
            said = self.call(name, handles, what)
            self.expect(said is not None and said[0] == w.WEFT_FAILED_PRECONDITION and REFUSED in said[1],
                        "%s %s: %s" % (name, what, said))

    def free(self):
        """What is of no context works on."""
        handles = dict(self.made.handles, weft_tree=self.made.plain_tree)
        for name, function in FUNCTIONS.items():
            kinds = {base(p["type"]) for p in given(function)}
            if kinds - FREE - {"weft_tree"} or name in ENDS or function["kind"] != "core":
                continue
            if name == "weft_context_create":
                continue  # without a cache of its own it would look for the user's
            said = self.call(name, handles, "of no context")
            self.expect(said is None or REFUSED not in said[1], "%s of no context: %s" % (name, said))

    def new_context(self):
        self.says("a new context hangs")
        ctx, x, y = w.weft_context(), w.weft_tensor(), w.weft_tensor()
        w.check(LIB, LIB.weft_context_create(self.made.options(threads=b"2", cache_mode=b"off"), c.byref(ctx)))
        w.check(LIB, self.made.from_host(ctx, c.byref(x)))
        w.check(LIB, LIB.weft_add(ctx, x, x, c.byref(y)))
        out = (c.c_float * ELEMENTS)()
        w.check(LIB, LIB.weft_tensor_to_host(y, out, c.sizeof(out)))
        self.expect(list(out) == [2.0 * i for i in range(ELEMENTS)], "a new context computes %s" % list(out))
        return ctx

    def scope(self):
        """The fluent layer's three: no error comes out of them, but the operation between them has it, and so does the end."""
        self.says("the scope hangs")
        scope, out = self.made.handles["weft_scope"], w.weft_tensor()
        ctx = LIB.weft_scope_mark(scope, b"here.c", 1)
        error = LIB.weft_relu(ctx, self.made.handles["weft_tensor"], c.byref(out))
        self.expect(LIB.weft_error_code(error) == w.WEFT_FAILED_PRECONDITION, "an operation in a scope is not refused")
        poison = LIB.weft_scope_adopt(scope, error, out)
        size = c.c_uint64()
        error = LIB.weft_tensor_size(poison, c.byref(size))
        self.expect(LIB.weft_error_code(error) == w.WEFT_FAILED_PRECONDITION, "a failed operation in a scope gives a tensor")
        LIB.weft_error_release(error)
        context = self.made.handles["weft_context"]
        LIB.weft_cancel(context)
        LIB.weft_span_begin(context, b"in a child", 10)
        LIB.weft_span_end(context)

    def releases(self, also):
        for kind, handle in list(self.made.handles.items()) + also:
            ends = HANDLES[kind]
            self.says("%s hangs" % ends["release"])
            if ends["retain"]:
                getattr(LIB, ends["retain"])(handle)
                getattr(LIB, ends["release"])(handle)
            said = getattr(LIB, ends["release"])(handle)
            if kind == "weft_scope":
                self.expect(LIB.weft_error_code(said) == w.WEFT_FAILED_PRECONDITION, "the end of a scope is not refused")

    def run(self, normally):
        try:
            os.chdir(self.made.folder)  # where a call that goes through after all may write
            handles = self.made.handles
            self.refused(handles, "of the parent's", bool)
            self.refused(dict(handles, weft_context=self.made.body), "in a body of the parent's", lambda kinds: "weft_context" in kinds)
            self.scope()
            self.free()
            fresh = self.fresh = self.new_context()
            self.refused(dict(handles, weft_context=fresh), "of the parent's in a new context", lambda kinds: kinds - {"weft_context"})
            self.releases([("weft_context", self.made.body), ("weft_tree", self.made.plain_tree), ("weft_context", fresh)])
            self.says("\n".join(self.wrong[:20]))
        except BaseException as e:  # noqa: BLE001 - nothing may get back into the test's own frames
            self.says("%s\n%r" % (bytes(self.shared[:4096]).rstrip(b"\0").decode(), e))
            self.wrong.append("thrown")
        if not self.wrong and normally:
            self.says("exit hangs")
            c.CDLL(None).exit(0)
        os._exit(1 if self.wrong else 0)


class Fork(unittest.TestCase):
    def busy(self, stop):
        """Holds the context's lock nearly always, and makes and ends functions, handles and texts."""
        calls, out, count = self.made.operation(5000), w.weft_tensor(), c.c_size_t()
        ctx = self.made.handles["weft_context"]
        while not stop.is_set():
            w.check(LIB, LIB.weft_op_apply_many(ctx, calls, len(calls), c.byref(out), None, 1, c.byref(count)))
            LIB.weft_tensor_release(out)
            body, parameter, y, f = w.weft_context(), w.weft_tensor(), w.weft_tensor(), w.weft_function()
            w.check(LIB, LIB.weft_function_begin(ctx, None, 0, self.made.info(), 1, c.byref(body), c.byref(parameter)))
            w.check(LIB, LIB.weft_relu(body, parameter, c.byref(y)))
            w.check(LIB, LIB.weft_function_end(body, c.byref(y), 1, c.byref(f)))
            for end, handle in ((LIB.weft_context_release, body), (LIB.weft_tensor_release, parameter), (LIB.weft_tensor_release, y),
                                (LIB.weft_function_release, f)):
                end(handle)

    def forked(self, normally):
        shared = mmap.mmap(-1, 4096)
        child = os.fork()
        if child == 0:
            Child(self.made, shared).run(normally)
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return status, shared[:].rstrip(b"\0").decode()
            time.sleep(0.01)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return -1, shared[:].rstrip(b"\0").decode()

    def test_every_function_in_a_child(self):
        with tempfile.TemporaryDirectory() as folder:
            self.made = Made(folder)
            stop = threading.Event()
            threads = [threading.Thread(target=self.busy, args=(stop,)) for _ in range(2)]
            for thread in threads:
                thread.start()
            try:
                for i in range(FORKS):
                    time.sleep(0.003 * i)
                    self.assertEqual((0, "exit hangs" if i % 2 else ""), self.forked(normally=i % 2 == 1), "fork %d" % i)
            finally:
                stop.set()
                for thread in threads:
                    thread.join()
                w.check(LIB, LIB.weft_cache_flush(self.made.handles["weft_cache"]))  # nobody writes while the folder goes

    def test_a_context_that_did_nothing_goes_along(self):
        with tempfile.TemporaryDirectory() as folder:
            made = Made(folder)
            ctx, name, length = w.weft_context(), c.c_void_p(), c.c_size_t()
            w.check(LIB, LIB.weft_context_create(made.options(cache_mode=b"off"), c.byref(ctx)))
            w.check(LIB, LIB.weft_context_option(ctx, b"mode", 4, c.byref(w.weft_blob())))
            child = os.fork()
            if child == 0:
                device = w.weft_device()
                bad = LIB.weft_device_at(ctx, 0, c.byref(device)) or LIB.weft_device_name(device, c.byref(name), c.byref(length))
                x = w.weft_tensor()
                bad = bad or made.from_host(ctx, c.byref(x)) or LIB.weft_eval(ctx, c.byref(x), 1, None)
                if bad:
                    print(w.text(LIB.weft_error_message(bad, None)), file=sys.stderr, flush=True)
                LIB.weft_context_release(ctx)
                os._exit(1 if bad else 0)
            self.assertEqual(0, os.waitpid(child, 0)[1])


if __name__ == "__main__":
    unittest.main()
