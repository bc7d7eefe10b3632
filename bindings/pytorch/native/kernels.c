/* Kernels in C: what the table of lowerings calls native. torch's C interface passes a kernel no data of its own, so each
 * registration takes the next of a row of small functions, whose number says what to do.
 */
#include <stdio.h>
#include <string.h>

#include "weft_torch.h"

enum { SLOTS = 320 };
static Slot slots[SLOTS];
static int slot_count;
static TorchLibraryHandle library;

static bool is_floating(uint32_t dtype) {
  uint32_t code = dtype & 0xff;
  return code == 2 || code == 4 || code == 5 || code >= 7;
}

/* The dtype in which an elementwise operation computes. */
static uint32_t compute_dtype(const Slot* slot, int kind) {
  uint32_t dtype = torch.weft_of[kind];
  if ((slot->flags & FLAG_FLOAT) != 0 && !is_floating(dtype)) {
    return WEFT_F32;
  }
  return dtype;
}

static bool multiply(Typed* x, const Operand* factor) {
  Typed number, out;
  if (!operand_read(factor, x->dtype, x->device, &number)) {
    return false;
  }
  weft_tensor* inputs[2] = {x->handle, number.handle};
  bool good = apply("mul", inputs, 2, NULL, 0, x->device, &out);
  typed_release(&number);
  if (good) {
    typed_release(x);
    *x = out;
  }
  return good;
}

bool elementwise(const Slot* slot, Operand* a, Operand* b, const Operand* alpha, Typed* out) {
  Operand* operands[2] = {a, b};
  int32_t device = common_device(operands, 2);
  int kind = device < 0 ? -1 : result_kind(operands, 2);
  if (kind < 0) {
    return false;
  }
  if ((slot->flags & FLAG_SWAP) != 0) {
    operands[0] = b;
    operands[1] = a;
  }
  uint32_t dtype = compute_dtype(slot, kind);
  if (dtype == WEFT_BOOL && (slot->flags & FLAG_BOOL) == 0) {
    error_set(WEFT_INVALID_ARGUMENT, "%s takes no bool, as on PyTorch's CPU", slot->operation);
    return false;
  }
  if (dtype == 0) {
    error_set(WEFT_UNIMPLEMENTED, "%s: the device xla lacks the common dtype of the operands (docs/pytorch.md)",
              slot->operation);
    return false;
  }
  Typed x, y;
  if (!operand_read(operands[0], dtype, device, &x)) {
    return false;
  }
  if (!operand_read(operands[1], dtype, device, &y)) {
    typed_release(&x);
    return false;
  }
  bool good = operand_is_one(alpha) || multiply(slot->flags & FLAG_SWAP ? &x : &y, alpha);
  if (good) {
    weft_tensor* inputs[2] = {x.handle, y.handle};
    good = apply(slot->operation, inputs, 2, NULL, 0, device, out);
  }
  typed_release(&x);
  typed_release(&y);
  return good;
}

bool unary(const Slot* slot, Operand* a, Typed* out) {
  int32_t device = common_device(&a, 1);
  if (device < 0) {
    return false;
  }
  uint32_t dtype = compute_dtype(slot, a->kind);
  Typed x;
  if (!operand_read(a, dtype, device, &x)) {
    return false;
  }
  bool good = false;
  if ((slot->flags & FLAG_INT) != 0 && !is_floating(dtype)) { /* rounding leaves whole numbers as they are */
    weft_attr attr = attr_ints("shape", x.dims, (size_t)x.ndim);
    good = apply1("reshape", &x, &attr, 1, out);
  } else {
    good = apply1(slot->operation, &x, NULL, 0, out);
  }
  typed_release(&x);
  return good;
}

bool matmul(Operand* a, Operand* b, Typed* out) {
  Operand* operands[2] = {a, b};
  int32_t device = common_device(operands, 2);
  Typed x, y;
  if (device < 0) {
    return false;
  }
  if (a->kind != b->kind) {
    error_set(WEFT_INVALID_ARGUMENT, "expected m1 and m2 to have the same dtype, but got: %s != %s",
              dtype_text(a->view.dtype), dtype_text(b->view.dtype));
    return false;
  }
  int na = a->view.ndim, nb = b->view.ndim;
  if (na < 1 || nb < 1 || a->view.sizes[na - 1] != b->view.sizes[nb > 1 ? nb - 2 : 0]) {
    error_set(WEFT_INVALID_ARGUMENT, "mat1 and mat2 shapes cannot be multiplied (%lldx%lld and %lldx%lld)",
              na > 1 ? (long long)a->view.sizes[na - 2] : 1, na > 0 ? (long long)a->view.sizes[na - 1] : 1,
              nb > 1   ? (long long)b->view.sizes[nb - 2]
              : nb > 0 ? (long long)b->view.sizes[0]
                       : 1,
              nb > 0 ? (long long)b->view.sizes[nb - 1] : 1);
    return false;
  }
  if (!operand_read(a, a->view.dtype, device, &x)) {
    return false;
  }
  if (!operand_read(b, b->view.dtype, device, &y)) {
    typed_release(&x);
    return false;
  }
  weft_tensor* inputs[2] = {x.handle, y.handle};
  bool good = apply("matmul", inputs, 2, NULL, 0, device, out);
  typed_release(&x);
  typed_release(&y);
  return good;
}

/* Whether torch lets a result of one dtype go into a tensor of another. */
static bool can_cast(uint32_t from, uint32_t to) {
  static const int order[16] = {[0] = 1, [1] = 1, [2] = 2, [4] = 2, [5] = 3, [6] = 0};
  int a = (from & 0xff) < 16 ? order[from & 0xff] : 2, b = (to & 0xff) < 16 ? order[to & 0xff] : 2;
  a = (from & 0xff) >= 7 ? 2 : a;
  b = (to & 0xff) >= 7 ? 2 : b;
  return a <= b;
}

bool write_result(const Operand* target, Typed* value, bool fresh) {
  if (target->view.host == NULL && target->view.device != value->device) {
    error_devices(value->device, target->view.device);
    typed_release(value);
    return false;
  }
  bool good = can_cast(value->dtype, target->view.dtype);
  if (!good) {
    error_set(WEFT_INVALID_ARGUMENT, "result type %s can't be cast to the desired output type %s",
              dtype_text(value->dtype), dtype_text(target->view.dtype));
  }
  int extra = target->view.ndim - value->ndim;
  good = good && extra >= 0;
  for (int i = 0; good && i < value->ndim; ++i) {
    good = value->dims[i] == target->view.sizes[extra + i] || value->dims[i] == 1;
  }
  if (!good && can_cast(value->dtype, target->view.dtype)) {
    char wide[256] = "", shape[256] = "";
    for (int i = 0; i < target->view.ndim && i < 12; ++i) {
      snprintf(shape + strlen(shape), sizeof shape - strlen(shape), "%s%lld", i ? ", " : "",
               (long long)target->view.sizes[i]);
    }
    for (int i = 0; i < value->ndim && i < 12; ++i) {
      snprintf(wide + strlen(wide), sizeof wide - strlen(wide), "%s%lld", i ? ", " : "", (long long)value->dims[i]);
    }
    error_set(WEFT_INVALID_ARGUMENT, "output with shape [%s] doesn't match the broadcast shape [%s]", shape, wide);
  }
  good = good && view_write(&target->view, value, fresh);
  typed_release(value);
  return good;
}

bool write_out(PyObject* object, Operand* target, Typed* value) {
  bool same = target->view.ndim == value->ndim;
  for (int i = 0; same && i < value->ndim; ++i) {
    same = target->view.sizes[i] == value->dims[i];
  }
  if (same) {
    return write_result(target, value, true);
  }
  if (target->view.count > 0 && PyErr_WarnEx(PyExc_UserWarning,
                                             "An output with one or more elements was resized, since its shape was not "
                                             "the result's. This is deprecated in PyTorch: resize it to 0 elements.",
                                             1) != 0) {
    error_set(ERROR_RAISED, "a warning is an error here");
    typed_release(value);
    return false;
  }
  PyObject* sizes = PyTuple_New(value->ndim); /* `out` grows as torch's do, which Python's resize_ knows */
  for (int i = 0; sizes != NULL && i < value->ndim; ++i) {
    PyTuple_SetItem(sizes, i, PyLong_FromLongLong(value->dims[i]));
  }
  PyObject* done = sizes == NULL ? NULL : PyObject_CallMethod(object, "resize_", "(O)", sizes);
  Py_XDECREF(sizes);
  Py_XDECREF(done);
  if (done == NULL || !operand_of_object(object, target)) {
    error_set(done == NULL ? ERROR_RAISED : WEFT_INTERNAL, "torch did not resize the tensor given as out");
    typed_release(value);
    return false;
  }
  return write_result(target, value, true);
}

/* write_out for a tensor's handle, from a kernel that does not hold the GIL. */
static bool write_out_handle(AtenTensorHandle out, Typed* value) {
  Operand target;
  void* object = NULL;
  if (!operand_of_tensor(out, &target)) {
    typed_release(value);
    return false;
  }
  PyGILState_STATE state = PyGILState_Ensure();
  bool good = torch.to_object(out, NULL, &object) == 0 && write_out(object, &target, value);
  if (!good && PyErr_Occurred()) {
    PyErr_Clear();
    error_set(WEFT_INVALID_ARGUMENT, "the tensor given as out could not be resized");
  }
  Py_XDECREF((PyObject*)object);
  PyGILState_Release(state);
  return good;
}

static AtenTensorHandle tensor_of(Typed* value) {
  Cell* cell = cell_new(value->dtype, value->device, value->ndim, value->dims, value->handle);
  return cell == NULL ? NULL : cell_tensor(cell);
}

/* Operands of an elementwise kernel or product; the result is a new tensor, or the first operand. */
static AtenTensorHandle call_operation(const Slot* slot, AtenTensorHandle first, AtenTensorHandle second,
                                       AtenTensorHandle target, bool* keep) {
  Operand a, b;
  Typed value;
  if (!operand_of_tensor(first, &a) || (second != NULL && !operand_of_tensor(second, &b))) {
    return NULL;
  }
  bool good = slot->kind == KIND_UNARY    ? unary(slot, &a, &value)
              : slot->kind == KIND_MATMUL ? matmul(&a, &b, &value)
                                          : elementwise(slot, &a, &b, NULL, &value);
  if (!good) {
    return NULL;
  }
  if (target != NULL) {
    return write_out_handle(target, &value) ? target : NULL;
  }
  if ((slot->flags & FLAG_INPLACE) == 0) {
    return tensor_of(&value);
  }
  *keep = true;
  return write_result(&a, &value, true) ? first : NULL;
}

static bool list_take(StableIValue value, int64_t* out, int* out_count) {
  StableListHandle list = (StableListHandle)value;
  size_t size = 0;
  torch.list_size(list, &size);
  bool good = size <= MAX_RANK;
  for (size_t i = 0; good && i < size; ++i) {
    StableIValue item = 0;
    torch.list_get(list, i, &item);
    out[i] = (int64_t)item;
  }
  torch.list_delete(list);
  *out_count = (int)size;
  if (!good) {
    error_set(WEFT_UNIMPLEMENTED, "a tensor of %d dimensions: the device xla has at most %d", *out_count, MAX_RANK);
  }
  return good;
}

static AtenTensorHandle shown_as(AtenTensorHandle self, int ndim, const int64_t* sizes, const int64_t* strides,
                                 int64_t offset) {
  int64_t at = 0;
  AtenTensorHandle out = NULL;
  torch.get_offset(self, &at);
  if (torch.reinterpret(self, ndim, sizes, strides, offset - at, &out) != 0) {
    error_set(WEFT_INVALID_ARGUMENT, "%s", torch.what == NULL ? "torch made no view" : torch.what());
    return NULL;
  }
  return out;
}

static AtenTensorHandle call_as_strided(const Slot* slot, StableIValue* stack, uint64_t inputs) {
  int64_t sizes[MAX_RANK], strides[MAX_RANK], offset = 0;
  int ndim = 0, count = 0;
  AtenTensorHandle self = (AtenTensorHandle)stack[0];
  torch.get_offset(self, &offset);
  if (slot->kind == KIND_AS_STRIDED && inputs > 3 && stack[3] != 0) {
    StableIValue* given = (StableIValue*)stack[3];
    offset = (int64_t)*given;
    torch.delete_value(given);
  }
  bool good = list_take(stack[1], sizes, &ndim);
  good = list_take(stack[2], strides, &count) && good;
  if (good && ndim != count) {
    error_set(WEFT_INVALID_ARGUMENT, "mismatch in length of strides and shape");
    good = false;
  }
  View view;
  if (!good || !view_of_tensor(self, &view)) {
    return NULL;
  }
  int64_t last = offset;
  bool empty = false;
  for (int i = 0; i < ndim; ++i) {
    if (strides[i] < 0 || sizes[i] < 0) {
      error_set(WEFT_INVALID_ARGUMENT, "as_strided: Negative strides are not supported at the moment");
      return NULL;
    }
    empty = empty || sizes[i] == 0;
    last += (sizes[i] - 1) * strides[i];
  }
  if (view.cell != NULL && !empty) {
    int64_t bytes = (last + 1) * (int64_t)dtype_size(view.dtype);
    int64_t have = view.cell->count * (int64_t)dtype_size(view.cell->dtype);
    if (bytes > have) {
      error_set(
          WEFT_INVALID_ARGUMENT,
          "setStorage: sizes, strides and storage offset require a storage size of %lld bytes, which is out of bounds for "
          "storage of size %lld",
          (long long)bytes, (long long)have);
      return NULL;
    }
  }
  return shown_as(self, ndim, sizes, strides, offset);
}

/* Strides under which the same elements have another shape; false: they have none. */
static bool view_strides(const View* view, int ndim, const int64_t* sizes, int64_t* strides) {
  if (view->count == 0) {
    int64_t stride = 1;
    for (int i = ndim - 1; i >= 0; --i) {
      strides[i] = stride;
      stride *= sizes[i] > 1 ? sizes[i] : 1;
    }
    return true;
  }
  int at = ndim - 1;
  int64_t chunk_stride = view->ndim > 0 ? view->strides[view->ndim - 1] : 1;
  int64_t elements = 1, shown = 1;
  for (int i = view->ndim - 1; i >= 0; --i) {
    elements *= view->sizes[i];
    if (i == 0 || (view->sizes[i - 1] != 1 && view->strides[i - 1] != elements * chunk_stride)) {
      while (at >= 0 && (shown < elements || sizes[at] == 1)) {
        strides[at] = shown * chunk_stride;
        shown *= sizes[at--];
      }
      if (shown != elements) {
        return false;
      }
      if (i > 0) {
        chunk_stride = view->strides[i - 1];
        elements = shown = 1;
      }
    }
  }
  while (view->ndim == 0 && at >= 0) {
    strides[at--] = 1;
  }
  return at < 0;
}

static AtenTensorHandle call_view(StableIValue* stack) {
  int64_t sizes[MAX_RANK], strides[MAX_RANK], offset = 0, known = 1;
  int ndim = 0, open = -1;
  View self;
  AtenTensorHandle tensor = (AtenTensorHandle)stack[0];
  if (!list_take(stack[1], sizes, &ndim) || !view_of_tensor(tensor, &self)) {
    return NULL;
  }
  for (int i = 0; i < ndim; ++i) {
    if (sizes[i] == -1 && open < 0) {
      open = i;
    } else {
      known *= sizes[i];
    }
  }
  if (open >= 0) {
    if (known == 0) {
      error_set(
          WEFT_INVALID_ARGUMENT,
          "cannot reshape tensor of 0 elements into a shape with an unspecified dimension size of -1: it can be any value");
      return NULL;
    }
    sizes[open] = self.count / known;
    known *= sizes[open];
  }
  if (known != self.count) {
    error_set(WEFT_INVALID_ARGUMENT, "shape is invalid for input of size %lld", (long long)self.count);
    return NULL;
  }
  if (!view_strides(&self, ndim, sizes, strides)) {
    error_set(
        WEFT_INVALID_ARGUMENT,
        "view size is not compatible with input tensor's size and stride (at least one dimension spans across two "
        "contiguous subspaces). Use .reshape(...) instead.");
    return NULL;
  }
  torch.get_offset(tensor, &offset);
  return shown_as(tensor, ndim, sizes, strides, offset);
}

static AtenTensorHandle call_unfold(StableIValue* stack) {
  int64_t sizes[MAX_RANK + 1], strides[MAX_RANK + 1], offset = 0;
  int64_t dim = (int64_t)stack[1], size = (int64_t)stack[2], step = (int64_t)stack[3];
  View self;
  AtenTensorHandle tensor = (AtenTensorHandle)stack[0];
  if (!view_of_tensor(tensor, &self)) {
    return NULL;
  }
  int ndim = self.ndim;
  dim += dim < 0 ? (ndim > 0 ? ndim : 1) : 0;
  int64_t length = ndim > 0 && dim >= 0 && dim < ndim ? self.sizes[dim] : 1;
  if (dim < 0 || (dim >= ndim && dim != 0) || size > length || size < 0 || step <= 0 || ndim >= MAX_RANK) {
    error_set(WEFT_INVALID_ARGUMENT, "maximum size for tensor at dimension %lld is %lld but size is %lld, step %lld",
              (long long)dim, (long long)length, (long long)size, (long long)step);
    return NULL;
  }
  for (int i = 0; i < ndim; ++i) {
    sizes[i] = self.sizes[i];
    strides[i] = self.strides[i];
  }
  sizes[ndim] = size;
  strides[ndim] = ndim > 0 ? strides[dim] : 1;
  if (ndim > 0) {
    sizes[dim] = (length - size) / step + 1;
    strides[dim] *= step;
  }
  torch.get_offset(tensor, &offset);
  return shown_as(tensor, ndim + 1, sizes, strides, offset);
}

static void native_call(int number, StableIValue* stack, uint64_t inputs) {
  Slot* slot = &slots[number];
  AtenTensorHandle first = (AtenTensorHandle)stack[0], second = NULL, target = NULL, out = NULL;
  bool keep = false;
  __atomic_fetch_add(&slot->calls, 1, __ATOMIC_RELAXED);
  switch (slot->kind) {
    case KIND_AS_STRIDED:
    case KIND_RESHAPE_ALIAS: out = call_as_strided(slot, stack, inputs); break;
    case KIND_VIEW: out = call_view(stack); break;
    case KIND_UNFOLD: out = call_unfold(stack); break;
    default:
      target = (slot->flags & FLAG_OUT) != 0 ? (AtenTensorHandle)stack[inputs - 1] : NULL;
      second = inputs > (target != NULL ? 2u : 1u) ? (AtenTensorHandle)stack[1] : NULL;
      out = call_operation(slot, first, second, target, &keep);
      break;
  }
  if (second != NULL) {
    torch.delete_tensor(second);
  }
  if (!keep || out == NULL) {
    torch.delete_tensor(first);
  }
  if (target != NULL && out == NULL) {
    torch.delete_tensor(target);
  }
  if (out == NULL) {
    error_torch();
  }
  stack[0] = (StableIValue)out;
}

#define KERNEL(n)                                                                  \
  static void kernel_##n(StableIValue* stack, uint64_t inputs, uint64_t outputs) { \
    (void)outputs;                                                                 \
    native_call(n - 1000, stack, inputs);                                          \
  }
#define TEN(x, n) x(n##0) x(n##1) x(n##2) x(n##3) x(n##4) x(n##5) x(n##6) x(n##7) x(n##8) x(n##9)
#define HUNDRED(x, n) \
  TEN(x, n##0)        \
  TEN(x, n##1) TEN(x, n##2) TEN(x, n##3) TEN(x, n##4) TEN(x, n##5) TEN(x, n##6) TEN(x, n##7) TEN(x, n##8) TEN(x, n##9)
#define ALL(x) HUNDRED(x, 10) HUNDRED(x, 11) HUNDRED(x, 12)
ALL(KERNEL)
#define NAME(n) kernel_##n,
static const StableKernel kernels[] = {ALL(NAME)};

PyObject* native_register(PyObject* self, PyObject* args) {
  (void)self;
  const char *overload = NULL, *operation = NULL;
  int kind = 0, flags = 0;
  if (!PyArg_ParseTuple(args, "siis", &overload, &kind, &flags, &operation)) {
    return NULL;
  }
  if (library == NULL && torch.library_init_impl("aten", "PrivateUse1", "weft", 0, &library) != 0) {
    PyErr_SetString(PyExc_RuntimeError, "torch takes no kernels for the device xla");
    return NULL;
  }
  if (slot_count >= (int)(sizeof kernels / sizeof *kernels)) {
    PyErr_SetString(PyExc_RuntimeError, "more native kernels than there is room for");
    return NULL;
  }
  Slot* slot = &slots[slot_count];
  slot->kind = (Kind)kind;
  slot->flags = flags;
  snprintf(slot->operation, sizeof slot->operation, "%s", operation);
  snprintf(slot->overload, sizeof slot->overload, "%s", overload);
  if (torch.library_impl(library, slot->overload, kernels[slot_count], torch.version) != 0) {
    return PyErr_Format(PyExc_RuntimeError, "torch takes no kernel for %s", overload);
  }
  ++slot_count;
  Py_RETURN_NONE;
}

/* How often each native kernel was called, by overload. */
PyObject* native_counts(PyObject* self, PyObject* args) {
  (void)self;
  (void)args;
  PyObject* out = PyDict_New();
  for (int i = 0; out != NULL && i < slot_count; ++i) {
    uint64_t calls = __atomic_load_n(&slots[i].calls, __ATOMIC_RELAXED);
    PyObject* number = PyLong_FromUnsignedLongLong(calls);
    if (number == NULL || (calls > 0 && PyDict_SetItemString(out, slots[i].overload, number) != 0)) {
      Py_XDECREF(number);
      Py_CLEAR(out);
      break;
    }
    Py_DECREF(number);
  }
  return out;
}

/* Whether torch hands tensors of Python's to kernels in C: since 2.14. Without that, kernels in C make views alone, and
 * those that compute are called as Python functions.
 */
PyObject* native_ready(PyObject* self, PyObject* args) {
  (void)self;
  (void)args;
  return PyBool_FromLong(torch.from_object != NULL && torch.to_object != NULL);
}
