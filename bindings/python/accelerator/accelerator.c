/* The accelerator of the Python package: operations on tensors recorded by one call of C, without a frame of Python.
 *
 * It takes the short way alone: operands that are tensors, options that were packed before, no error. Everything else it gives
 * to the function of Python that it stands for (libweft/_ops.py), so that results, errors and their texts are the same with
 * and without it. Built for the limited API of Python 3.11 (libweft/_accelerator.abi3.so), and opened by libweft/_fast.py.
 *
 * One interpreter of a process uses it, the first; others take the functions of Python. All of it runs under Python's lock,
 * which is given up only where the context computes at once what is recorded: recording alone waits for nothing. */
#include "accelerator.h"

#include <string.h>
#include <structmember.h>

typedef struct {
  PyObject_HEAD
  weft_tensor* raw;   /* the library's reference; owned here while there is no handle */
  PyObject* handle;   /* the ctypes object that owns it, once somebody asked for one */
  PyObject* type;     /* what the class keeps: element type and shape */
  PyObject* shape;
  PyObject* weak;
} Tensor;

typedef weft_error* (*Call1)(weft_context*, weft_tensor*, weft_tensor**);
typedef weft_error* (*Call2)(weft_context*, weft_tensor*, weft_tensor*, weft_tensor**);
typedef weft_error* (*Call3)(weft_context*, weft_tensor*, weft_tensor*, weft_tensor*, weft_tensor**);
typedef weft_error* (*Call4)(weft_context*, weft_tensor*, weft_tensor*, weft_tensor*, weft_tensor*, weft_tensor**);
typedef weft_error* (*Options1)(weft_context*, weft_tensor*, const void*, weft_tensor**);
typedef weft_error* (*Options2)(weft_context*, weft_tensor*, weft_tensor*, const void*, weft_tensor**);
typedef weft_error* (*Options3)(weft_context*, weft_tensor*, weft_tensor*, weft_tensor*, const void*, weft_tensor**);
typedef weft_error* (*Options4)(weft_context*, weft_tensor*, weft_tensor*, weft_tensor*, weft_tensor*, const void*,
                                weft_tensor**);

enum { kMostOperands = 4, kMostOps = 512, kMostRest = 8 };

/* An operation: operands that it must have and may have, its function of C, and the function of Python that it stands for. */
typedef struct {
  int needed, most, options;
  union {
    void* address;
    Call1 call1;
    Call2 call2;
    Call3 call3;
    Call4 call4;
    Options1 options1;
    Options2 options2;
    Options3 options3;
    Options4 options4;
  } f;
  PyObject* python;
  PyObject* packer;      /* packs its option struct; NULL: it has none */
  PyObject* packed;      /* {(names, values...): the struct's bytes} */
  PyObject* last_names;  /* the last of these, which most calls of a loop meet again */
  PyObject* last_values[kMostRest];
  Py_ssize_t last_count;
  PyObject* last_struct;
} Op;

static Op ops[kMostOps];
static int op_count;

struct library c;

static PyTypeObject* tensor_type; /* the class Tensor; Python gives it its methods */
static PyObject *handle_class, *fail, *resolve, *explain, *dtype_class;
static allocfunc allocate;  /* of tensor_type, like give_back */
static freefunc give_back;

/* --- tensors */

static inline int is_tensor(PyObject* x) { return Py_TYPE(x) == tensor_type || PyObject_TypeCheck(x, tensor_type); }

static void tensor_free(PyObject* self) {
  Tensor* t = (Tensor*)self;
  PyTypeObject* type = Py_TYPE(self);
  if (t->weak != NULL) PyObject_ClearWeakRefs(self);
  if (t->handle != NULL)
    Py_CLEAR(t->handle);
  else if (t->raw != NULL)
    c.release(t->raw);
  Py_CLEAR(t->type);
  Py_CLEAR(t->shape);
  (type == tensor_type ? give_back : (freefunc)PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

static PyObject* handle_get(PyObject* self, void* closure) {
  Tensor* t = (Tensor*)self;
  (void)closure;
  if (t->handle == NULL) {
    PyObject *address, *made;
    if (t->raw == NULL) {
      PyObject* name = PyType_GetName(Py_TYPE(self));
      if (name != NULL) PyErr_Format(PyExc_AttributeError, "'%U' object has no attribute '_h'", name);
      Py_XDECREF(name);
      return NULL;
    }
    address = PyLong_FromVoidPtr(t->raw);
    if (address == NULL) return NULL;
    made = PyObject_CallFunctionObjArgs(handle_class, address, NULL);
    Py_DECREF(address);
    if (made == NULL) return NULL;
    t->handle = made; /* it owns the reference from here on */
  }
  return Py_NewRef(t->handle);
}

static int handle_set(PyObject* self, PyObject* value, void* closure) {
  Tensor* t = (Tensor*)self;
  void** cell;
  PyObject* before = t->handle;
  (void)closure;
  if (value == NULL) {
    PyErr_SetString(PyExc_AttributeError, "_h stays");
    return -1;
  }
  cell = cell_of(value);
  if (cell == NULL) return -1;
  if (before == NULL && t->raw != NULL) c.release(t->raw);
  t->handle = Py_NewRef(value);
  t->raw = *cell;
  Py_XDECREF(before);
  return 0;
}

/* The buffer's interface by the method of Python, which Python itself asks for from 3.12 on. */
static int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  PyObject* memory = PyObject_CallMethod(self, "__buffer__", "i", flags);
  int status;
  view->obj = NULL;
  if (memory == NULL) return -1;
  status = PyObject_GetBuffer(memory, view, flags);
  Py_DECREF(memory); /* the view has it */
  return status;
}

/* A new tensor of a reference that is taken over; a step gets a share of it. Without one and without an exception: what the
 * library says of the share is for Python to raise. */
static PyObject* tensor_of(weft_tensor* raw, Here* h, weft_error** error) {
  Tensor* t = (Tensor*)allocate(tensor_type, 0);
  *error = NULL;
  if (t == NULL) {
    c.release(raw);
    return NULL;
  }
  t->raw = raw;
  if (h->cell[kScope] != NULL) *error = c.share(*h->cell[kScope], raw);
  if (*error != NULL) Py_CLEAR(t);
  return (PyObject*)t;
}

static PyObject* raised(weft_error* error) {
  PyObject* number = PyLong_FromVoidPtr(error);
  if (number != NULL) {
    Py_XDECREF(PyObject_CallFunctionObjArgs(fail, number, NULL));
    Py_DECREF(number);
  }
  return NULL;
}

/* The tensor of a handle that Python filled. */
static PyObject* py_done(PyObject* self, PyObject* handle) {
  Here* h = here();
  Tensor* t;
  (void)self;
  if (h == NULL) return NULL;
  t = (Tensor*)allocate(tensor_type, 0);
  if (t == NULL) return NULL;
  if (handle_set((PyObject*)t, handle, NULL)) {
    Py_DECREF(t);
    return NULL;
  }
  if (h->cell[kScope] != NULL) {
    weft_error* error = c.share(*h->cell[kScope], t->raw);
    if (error != NULL) {
      Py_DECREF(t);
      return raised(error);
    }
  }
  return (PyObject*)t;
}

/* --- operations */

static inline weft_error* call_c(const Op* op, weft_context* ctx, weft_tensor** x, const void* options, weft_tensor** out) {
  if (op->options) switch (op->most) {
      case 1: return op->f.options1(ctx, x[0], options, out);
      case 2: return op->f.options2(ctx, x[0], x[1], options, out);
      case 3: return op->f.options3(ctx, x[0], x[1], x[2], options, out);
      default: return op->f.options4(ctx, x[0], x[1], x[2], x[3], options, out);
    }
  switch (op->most) {
    case 1: return op->f.call1(ctx, x[0], out);
    case 2: return op->f.call2(ctx, x[0], x[1], out);
    case 3: return op->f.call3(ctx, x[0], x[1], x[2], out);
    default: return op->f.call4(ctx, x[0], x[1], x[2], x[3], out);
  }
}

/* Records an operation. NULL without an exception: the function of Python is to be called, which says what is wrong. */
static PyObject* record(const Op* op, weft_tensor** x, const void* options) {
  Here* h = here();
  PyObject *object, *made;
  weft_tensor* out = NULL;
  weft_error* error;
  weft_context* context;
  PyThreadState* lock = NULL;
  int waits;
  if (h == NULL) return NULL;
  context = context_of(h, &object, &waits);
  if (context == NULL || mark(context)) return NULL;
  Py_INCREF(object); /* another thread may end the context while Python's lock is open */
  if (waits) lock = PyEval_SaveThread();
  error = call_c(op, context, x, options, &out);
  if (waits) PyEval_RestoreThread(lock);
  Py_DECREF(object);
  if (error != NULL) {
    c.release_error(error);
    return NULL;
  }
  made = tensor_of(out, h, &error);
  return error != NULL ? raised(error) : made;
}

static int plain(PyObject* value) {
  PyTypeObject* type = Py_TYPE(value);
  if (value == Py_None || type == &PyLong_Type || type == &PyBool_Type || type == &PyUnicode_Type || type == &PyFloat_Type)
    return 1;
  if ((PyObject*)type == dtype_class) return 1;
  if (type == &PyTuple_Type) {
    const Py_ssize_t count = PyTuple_Size(value);
    Py_ssize_t i;
    for (i = 0; i < count; ++i) {
      if (Py_TYPE(PyTuple_GetItem(value, i)) != &PyLong_Type) return 0;
    }
    return 1;
  }
  return 0;
}

static void remember(Op* op, PyObject* names, PyObject* const* values, Py_ssize_t count, PyObject* packed) {
  Py_ssize_t i;
  put(&op->last_names, names == NULL ? NULL : Py_NewRef(names));
  for (i = 0; i < count; ++i) put(&op->last_values[i], Py_NewRef(values[i]));
  op->last_count = count;
  put(&op->last_struct, Py_NewRef(packed));
}

/* The packed options of what stands behind the operands (borrowed), or NULL: Python is to say. */
static PyObject* options_of(Op* op, PyObject* const* values, Py_ssize_t count, PyObject* names) {
  const Py_ssize_t named = names == NULL ? 0 : PyTuple_Size(names);
  PyObject *key, *packed, *rest;
  Py_ssize_t i;
  if (op->packer == NULL || count > kMostRest) return NULL;
  if (op->last_struct != NULL && op->last_names == names && op->last_count == count) {
    for (i = 0; i < count && op->last_values[i] == values[i]; ++i) continue;
    if (i == count) return op->last_struct;
  }
  for (i = 0; i < count; ++i) {
    if (!plain(values[i])) return NULL;
  }
  rest = PyTuple_New(count);
  if (rest == NULL) return NULL;
  for (i = 0; i < count; ++i) PyTuple_SetItem(rest, i, Py_NewRef(values[i]));
  key = PyTuple_Pack(2, names == NULL ? Py_None : names, rest);
  packed = key == NULL ? NULL : PyDict_GetItemWithError(op->packed, key);
  if (packed == NULL && key != NULL && !PyErr_Occurred()) {
    PyObject *operands = PyLong_FromSsize_t(op->most), *found = NULL;
    if (operands != NULL)
      found = PyObject_CallFunctionObjArgs(resolve, op->python, op->packer, operands, rest,
                                           named == 0 ? PyTuple_GetItem(key, 0) : names, NULL);
    Py_XDECREF(operands);
    if (found != NULL && PyBytes_Check(found)) {
      if (PyDict_Size(op->packed) >= 1024) PyDict_Clear(op->packed);
      if (PyDict_SetItem(op->packed, key, found) == 0) packed = found;
    }
    Py_XDECREF(found); /* the dict has it */
  }
  Py_XDECREF(key);
  Py_DECREF(rest);
  if (packed != NULL) remember(op, names, values, count, packed);
  return packed;
}

/* A TypeError of the call itself (nothing of the function ran yet) becomes Python's explanation of it, where it has one. */
static void explained(PyObject* function) {
  PyObject *type, *value, *trace, *better = NULL;
  if (!PyErr_ExceptionMatches(PyExc_TypeError)) return;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  if (trace == NULL) better = PyObject_CallFunctionObjArgs(explain, function, value, NULL);
  if (better == NULL || better == Py_None) {
    PyErr_Clear();
    PyErr_Restore(type, value, trace);
  } else {
    PyErr_SetObject((PyObject*)Py_TYPE(better), better);
    Py_XDECREF(type), Py_XDECREF(value), Py_XDECREF(trace);
  }
  Py_XDECREF(better);
}

static PyObject* by_python(const Op* op, PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  const Py_ssize_t named = names == NULL ? 0 : PyTuple_Size(names), first = self != NULL;
  PyObject *tuple, *dict = NULL, *result = NULL;
  Py_ssize_t i;
  if (PyErr_Occurred()) return NULL;
  tuple = PyTuple_New(count + first);
  if (tuple == NULL) return NULL;
  if (self != NULL) PyTuple_SetItem(tuple, 0, Py_NewRef(self));
  for (i = 0; i < count; ++i) PyTuple_SetItem(tuple, i + first, Py_NewRef(args[i]));
  if (named > 0) {
    dict = PyDict_New();
    for (i = 0; dict != NULL && i < named; ++i) {
      if (PyDict_SetItem(dict, PyTuple_GetItem(names, i), args[count + i])) Py_CLEAR(dict);
    }
  }
  if (named == 0 || dict != NULL) result = PyObject_Call(op->python, tuple, dict);
  if (result == NULL && dict != NULL) explained(op->python);
  Py_DECREF(tuple);
  Py_XDECREF(dict);
  return result;
}

/* A call of an operation; self is the first operand of a method and NULL of a function. */
__attribute__((noinline)) static PyObject* call(Op* op, PyObject* self, PyObject* const* args, Py_ssize_t count,
                                                PyObject* names) {
  weft_tensor* x[kMostOperands] = {NULL};
  const Py_ssize_t named = names == NULL ? 0 : PyTuple_Size(names);
  const void* options = NULL;
  PyObject* made;
  Py_ssize_t used = 0;
  int i = 0;
  if (self != NULL) x[i++] = ((Tensor*)self)->raw;
  for (; i < op->most && used < count; ++i, ++used) {
    if (is_tensor(args[used]))
      x[i] = ((Tensor*)args[used])->raw;
    else if (i < op->needed || args[used] != Py_None)
      return by_python(op, self, args, count, names);
    else
      continue;
    if (x[i] == NULL) return by_python(op, self, args, count, names);
  }
  if (i < op->needed || (self != NULL && x[0] == NULL)) return by_python(op, self, args, count, names);
  if (used < count || named > 0) {
    PyObject* packed = options_of(op, args + used, count - used + named, names);
    if (packed == NULL) return by_python(op, self, args, count, names);
    if (PyBytes_Size(packed) > 0) options = PyBytes_AsString(packed);
    Py_INCREF(packed); /* another thread may drop it from the cache while Python's lock is open */
    made = record(op, x, options);
    Py_DECREF(packed);
  } else {
    made = record(op, x, NULL);
  }
  return made != NULL ? made : by_python(op, self, args, count, names);
}

/* The tensor of a number beside one (yours), of its type, as _convert.beside makes it. NULL: Python is to make it. */
static weft_tensor* number_beside(weft_tensor* like, PyObject* value) {
  const int whole = Py_TYPE(value) == &PyLong_Type;
  Here* h = here();
  weft_tensor* made = NULL;
  weft_dtype dtype;
  weft_error* error;
  double number;
  int moves = 0;
  if (h == NULL || (!whole && Py_TYPE(value) != &PyFloat_Type)) return NULL;
  error = c.dtype(like, &dtype);
  if (error == NULL) {
    const unsigned kind = (unsigned)dtype & 255; /* 2 and 4 are floats, 0 and 1 integers */
    if (kind != 2 && kind != 4 && !(whole && kind < 2)) return NULL;
    number = PyFloat_AsDouble(value); /* an integer too large for that raises */
    if (PyErr_Occurred() || (whole && (number > 9007199254740992.0 || number < -9007199254740992.0))) return NULL;
    if (h->object[kBody] == NULL) moves = changed_here(value);
    if (moves < 0) return NULL;
    error = (moves ? c.argument : c.constant)(like, number, &made);
  }
  if (error == NULL && h->cell[kScope] != NULL) error = c.share(*h->cell[kScope], made);
  if (error == NULL) return made;
  c.release_error(error);
  if (made != NULL) c.release(made);
  return NULL;
}

/* An operator of two operands, either of which may be something else than a tensor. */
static PyObject* binary(Op* op, PyObject* a, PyObject* b) {
  PyObject *args[2] = {a, b}, *made;
  const int first = is_tensor(a), second = is_tensor(b);
  if (op->python == NULL) Py_RETURN_NOTIMPLEMENTED;
  if (first && second) {
    weft_tensor* x[kMostOperands] = {((Tensor*)a)->raw, ((Tensor*)b)->raw, NULL, NULL};
    if (x[0] != NULL && x[1] != NULL && (made = record(op, x, NULL)) != NULL) return made;
  } else if (op->packer == NULL && (first || second)) {
    weft_tensor* like = ((Tensor*)(first ? a : b))->raw;
    weft_tensor* number = like == NULL ? NULL : number_beside(like, first ? b : a);
    if (number != NULL) {
      weft_tensor* x[kMostOperands] = {first ? like : number, first ? number : like, NULL, NULL};
      made = record(op, x, NULL);
      c.release(number);
      if (made != NULL) return made;
    }
    PyErr_Clear(); /* Python says what is wrong with the number */
  }
  return by_python(op, NULL, args, 2, NULL);
}

static PyObject* unary(Op* op, PyObject* a) {
  return call(op, NULL, &a, 1, NULL);
}

/* Operators, in the order in which install_operators takes their functions. */
enum {
  kAdd, kSub, kMul, kFloorDivide, kMod, kAnd, kOr, kXor, kLeft, kMatmul, kNeg, kInvert, kLt, kLe, kEq, kNe, kGt, kGe, kOperators
};
static Op operators[kOperators];
#define BINARY(name, which) \
  static PyObject* name(PyObject* a, PyObject* b) { return binary(&operators[which], a, b); }
BINARY(nb_add, kAdd)
BINARY(nb_sub, kSub)
BINARY(nb_mul, kMul)
BINARY(nb_floor_divide, kFloorDivide)
BINARY(nb_mod, kMod)
BINARY(nb_and, kAnd)
BINARY(nb_or, kOr)
BINARY(nb_xor, kXor)
BINARY(nb_left, kLeft)
BINARY(nb_matmul, kMatmul)
static PyObject* compare(PyObject* a, PyObject* b, int how) {
  if ((how == Py_EQ || how == Py_NE) && (b == Py_None || PyUnicode_Check(b))) Py_RETURN_NOTIMPLEMENTED;
  return binary(&operators[kLt + how], a, b); /* Py_LT, Py_LE, ... are 0, 1, ... in the order of the operators */
}
static hashfunc object_hash; /* by identity, as of any object */
static Py_hash_t tensor_hash(PyObject* self) { return object_hash(self); }
static PyObject* nb_neg(PyObject* a) { return unary(&operators[kNeg], a); }
static PyObject* nb_invert(PyObject* a) { return unary(&operators[kInvert], a); }

/* A function of C has no room for data of its own, so that each operation has two of them: as a function and as a method. */
#define ONE(n)                                                                                    \
  static PyObject* f##n(PyObject* self, PyObject* const* a, Py_ssize_t count, PyObject* names) {  \
    (void)self;                                                                                   \
    return call(&ops[0x##n], NULL, a, count, names);                                              \
  }                                                                                               \
  static PyObject* m##n(PyObject* self, PyObject* const* a, Py_ssize_t count, PyObject* names) {  \
    return call(&ops[0x##n], self, a, count, names);                                              \
  }
#define ALL16(M, p)                                               \
  M(p##0) M(p##1) M(p##2) M(p##3) M(p##4) M(p##5) M(p##6) M(p##7) \
  M(p##8) M(p##9) M(p##a) M(p##b) M(p##c) M(p##d) M(p##e) M(p##f)
#define ALL256(M, p)                                                                                                      \
  ALL16(M, p##0) ALL16(M, p##1) ALL16(M, p##2) ALL16(M, p##3) ALL16(M, p##4) ALL16(M, p##5) ALL16(M, p##6) ALL16(M, p##7) \
  ALL16(M, p##8) ALL16(M, p##9) ALL16(M, p##a) ALL16(M, p##b) ALL16(M, p##c) ALL16(M, p##d) ALL16(M, p##e) ALL16(M, p##f)
ALL256(ONE, 0)
ALL256(ONE, 1)

typedef PyObject* (*Fast)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);
#define FUNCTION(n) f##n,
#define METHOD(n) m##n,
static const Fast functions[kMostOps] = {ALL256(FUNCTION, 0) ALL256(FUNCTION, 1)};
static const Fast methods[kMostOps] = {ALL256(METHOD, 0) ALL256(METHOD, 1)};
static PyMethodDef definitions[kMostOps][2];

static int fill(Op* op, PyObject* address, int needed, int most, PyObject* python, PyObject* packer) {
  op->needed = needed, op->most = most, op->options = packer != Py_None;
  op->f.address = PyLong_AsVoidPtr(address);
  if (op->f.address == NULL) return -1;
  op->python = Py_NewRef(python);
  if (op->options) {
    op->packer = Py_NewRef(packer);
    op->packed = PyDict_New();
    if (op->packed == NULL) return -1;
  }
  return 0;
}

/* Text that stays as long as the process does. */
static const char* kept(const char* text) {
  const size_t size = strlen(text) + 1;
  char* copy = PyMem_Malloc(size);
  return copy == NULL ? (const char*)PyErr_NoMemory() : memcpy(copy, text, size);
}

/* function(name, doc, doc of the method or None, address, operands needed, most, Python's function, packer or None, module):
 * (the function, the method or None) */
static PyObject* py_function(PyObject* self, PyObject* args) {
  const char *name, *doc, *method_doc;
  PyObject *address, *python, *packer, *module, *module_name, *function, *method = NULL;
  int needed, most;
  PyMethodDef* d = definitions[op_count];
  (void)self;
  if (!PyArg_ParseTuple(args, "sszOiiOOO", &name, &doc, &method_doc, &address, &needed, &most, &python, &packer, &module))
    return NULL;
  if (op_count == kMostOps || most < 1 || most > kMostOperands) {
    PyErr_SetString(PyExc_ValueError, "the accelerator has no room for this operation");
    return NULL;
  }
  if (fill(&ops[op_count], address, needed, most, python, packer)) return NULL;
  d[0].ml_name = d[1].ml_name = kept(name);
  d[0].ml_doc = kept(doc);
  d[1].ml_doc = method_doc == NULL ? NULL : kept(method_doc);
  if (d[0].ml_name == NULL || d[0].ml_doc == NULL || (method_doc != NULL && d[1].ml_doc == NULL)) return NULL;
  d[0].ml_meth = (PyCFunction)(void (*)(void))functions[op_count];
  d[1].ml_meth = (PyCFunction)(void (*)(void))methods[op_count];
  d[0].ml_flags = d[1].ml_flags = METH_FASTCALL | METH_KEYWORDS;
  ++op_count;
  module_name = PyObject_GetAttrString(module, "__name__");
  if (module_name == NULL) return NULL;
  function = PyCFunction_NewEx(&d[0], module, module_name);
  Py_DECREF(module_name);
  if (function != NULL) method = method_doc == NULL ? Py_NewRef(Py_None) : PyDescr_NewMethod(tensor_type, &d[1]);
  if (method == NULL) {
    Py_XDECREF(function);
    return NULL;
  }
  return Py_BuildValue("NN", function, method);
}

/* operator(number, address, operands, Python's function) */
static PyObject* py_operator(PyObject* self, PyObject* args) {
  PyObject *address, *python, *packer;
  int which, operands;
  (void)self;
  if (!PyArg_ParseTuple(args, "iOiOO", &which, &address, &operands, &python, &packer)) return NULL;
  if (which < 0 || which >= kOperators || operands < 1 || operands > 2 || operators[which].python != NULL) {
    PyErr_SetString(PyExc_ValueError, "there is no such operator, or it is there already");
    return NULL;
  }
  if (fill(&operators[which], address, operands, operands, python, packer)) return NULL;
  Py_RETURN_NONE;
}

/* begin(addresses of the library's functions in the order of struct library, Handle, fail, start, resolve, explain, DType, the
 * package's folder, _convert's numbers and what stands there for one that changes) */
static PyObject* py_begin(PyObject* self, PyObject* args) {
  unsigned long long at[7];
  (void)self;
  if (!PyArg_ParseTuple(args, "(KKKKKKK)OOOOOOOOO", &at[0], &at[1], &at[2], &at[3], &at[4], &at[5], &at[6], &handle_class, &fail,
                        &start, &resolve, &explain, &dtype_class, &package, &numbers, &changed))
    return NULL;
  Py_INCREF(handle_class), Py_INCREF(fail), Py_INCREF(start), Py_INCREF(resolve), Py_INCREF(dtype_class), Py_INCREF(package);
  Py_INCREF(numbers), Py_INCREF(changed), Py_INCREF(explain);
  *(void**)&c.mark = (void*)(uintptr_t)at[0];
  *(void**)&c.share = (void*)(uintptr_t)at[1];
  *(void**)&c.release = (void*)(uintptr_t)at[2];
  *(void**)&c.release_error = (void*)(uintptr_t)at[3];
  *(void**)&c.dtype = (void*)(uintptr_t)at[4];
  *(void**)&c.constant = (void*)(uintptr_t)at[5];
  *(void**)&c.argument = (void*)(uintptr_t)at[6];
  Py_RETURN_NONE;
}

/* --- the module */

static PyMethodDef module_functions[] = {{"begin", py_begin, METH_VARARGS, NULL},
                                         {"set_own", py_set_own, METH_O, NULL},
                                         {"mark_with", py_mark_with, METH_O, NULL},
                                         {"function", py_function, METH_VARARGS, NULL},
                                         {"operator", py_operator, METH_VARARGS, NULL},
                                         {"mark", py_mark, METH_NOARGS, "Says to the library where the caller's code is."},
                                         {"done", py_done, METH_O, "The tensor of a handle that an operation gave."},
                                         {NULL, NULL, 0, NULL}};

static PyMemberDef tensor_members[] = {{"_type", T_OBJECT_EX, offsetof(Tensor, type), 0, NULL},
                                       {"_shape", T_OBJECT_EX, offsetof(Tensor, shape), 0, NULL},
                                       {"__weaklistoffset__", T_PYSSIZET, offsetof(Tensor, weak), READONLY, NULL},
                                       {NULL, 0, 0, 0, NULL}};
static PyGetSetDef tensor_properties[] = {{"_h", handle_get, handle_set, NULL, NULL}, {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot tensor_slots[] = {{Py_tp_dealloc, tensor_free},
                                     {Py_tp_members, tensor_members},
                                     {Py_tp_getset, tensor_properties},
                                     {Py_tp_richcompare, compare},
                                     {Py_tp_hash, tensor_hash},
                                     {Py_bf_getbuffer, get_buffer},
                                     {Py_nb_add, nb_add},
                                     {Py_nb_subtract, nb_sub},
                                     {Py_nb_multiply, nb_mul},
                                     {Py_nb_floor_divide, nb_floor_divide},
                                     {Py_nb_remainder, nb_mod},
                                     {Py_nb_and, nb_and},
                                     {Py_nb_or, nb_or},
                                     {Py_nb_xor, nb_xor},
                                     {Py_nb_lshift, nb_left},
                                     {Py_nb_matrix_multiply, nb_matmul},
                                     {Py_nb_negative, nb_neg},
                                     {Py_nb_invert, nb_invert},
                                     {0, NULL}};
static PyType_Spec tensor_spec = {"libweft._tensor.Tensor", sizeof(Tensor), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                                  tensor_slots};

static int module_exec(PyObject* module) {
  static int used;
  PyObject* now;
  if (used || PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
    PyErr_SetString(PyExc_ImportError, "the accelerator is for the first interpreter of a process, once");
    return -1;
  }
  used = 1;
  if (begin_here()) return -1;
  tensor_type = (PyTypeObject*)PyType_FromSpec(&tensor_spec);
  now = PyType_FromSpec(&now_spec);
  if (tensor_type == NULL || now == NULL) return -1;
  object_hash = (hashfunc)PyType_GetSlot(&PyBaseObject_Type, Py_tp_hash);
  allocate = (allocfunc)PyType_GetSlot(tensor_type, Py_tp_alloc);
  give_back = (freefunc)PyType_GetSlot(tensor_type, Py_tp_free);
  if (PyModule_AddObjectRef(module, "Tensor", (PyObject*)tensor_type)) return -1;
  return PyModule_AddObject(module, "Now", now);
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, module_exec}, {0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "libweft._accelerator", NULL, 0, module_functions, module_slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__accelerator(void);
PyMODINIT_FUNC PyInit__accelerator(void) { return PyModuleDef_Init(&definition); }
