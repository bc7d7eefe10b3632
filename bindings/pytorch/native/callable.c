/* Kernels whose arguments are numbers too, which torch's C interface cannot pass: torch calls them as Python functions,
 * but no Python code runs. `_weft_torch.kernel(kind, flags, operation)` makes one.
 */
#include <stdio.h>
#include <string.h>

#include "weft_torch.h"

enum { MAX_OPERANDS = 4 };

typedef bool (*Body)(const Slot* slot, Operand* operands, int count, const Operand* beta, const Operand* alpha,
                     Typed* out);

static bool body_binary(const Slot* slot, Operand* x, int count, const Operand* beta, const Operand* alpha,
                        Typed* out) {
  (void)beta;
  Operand positional;
  if (count == 3) { /* rsub and its kin: alpha without its name */
    positional = x[2];
    alpha = &positional;
  }
  return elementwise(slot, &x[0], &x[1], alpha, out);
}

static bool body_unary(const Slot* slot, Operand* x, int count, const Operand* beta, const Operand* alpha, Typed* out) {
  (void)count;
  (void)beta;
  (void)alpha;
  return unary(slot, &x[0], out);
}

static bool body_matmul(const Slot* slot, Operand* x, int count, const Operand* beta, const Operand* alpha,
                        Typed* out) {
  (void)slot;
  (void)count;
  (void)beta;
  (void)alpha;
  return matmul(&x[0], &x[1], out);
}

/* x * number in place, where the number is not 1; releases x where it fails. */
static bool scale(Typed* x, const Operand* number) {
  if (operand_is_one(number)) {
    return true;
  }
  Typed factor, out;
  if (!operand_read(number, x->dtype, x->device, &factor)) {
    typed_release(x);
    return false;
  }
  bool good = apply2("mul", x, &factor, &out);
  if (good) {
    *x = out;
  }
  return good;
}

/* beta * self + alpha * (x @ y) */
static bool body_addmm(const Slot* slot, Operand* x, int count, const Operand* beta, const Operand* alpha, Typed* out) {
  Operand* operands[3] = {&x[0], &x[1], &x[2]};
  int32_t device = common_device(operands, 3);
  (void)slot;
  (void)count;
  if (device < 0) {
    return false;
  }
  if (x[1].kind != x[2].kind || x[0].kind != x[1].kind) {
    error_set(WEFT_INVALID_ARGUMENT, "self, mat1 and mat2 must have the same dtype, but got %s, %s and %s",
              dtype_text(x[0].view.dtype), dtype_text(x[1].view.dtype), dtype_text(x[2].view.dtype));
    return false;
  }
  int n1 = x[1].view.ndim, n2 = x[2].view.ndim;
  if (n1 < 2 || n2 < 1 || x[1].view.sizes[n1 - 1] != x[2].view.sizes[n2 > 1 ? n2 - 2 : 0]) {
    error_set(WEFT_INVALID_ARGUMENT, "mat1 and mat2 shapes cannot be multiplied (%lldx%lld and %lldx%lld)",
              n1 > 1 ? (long long)x[1].view.sizes[n1 - 2] : 1, n1 > 0 ? (long long)x[1].view.sizes[n1 - 1] : 1,
              n2 > 1 ? (long long)x[2].view.sizes[n2 - 2] : 1, n2 > 0 ? (long long)x[2].view.sizes[n2 - 1] : 1);
    return false;
  }
  Typed a, b, product, self;
  if (!operand_read(&x[1], x[1].view.dtype, device, &a)) {
    return false;
  }
  if (!operand_read(&x[2], x[2].view.dtype, device, &b)) {
    typed_release(&a);
    return false;
  }
  if (!apply2("matmul", &a, &b, &product) || !scale(&product, alpha)) {
    return false;
  }
  if (beta != NULL && beta->integral && beta->i == 0) { /* then self is not looked at: its NaN does not count */
    *out = product;
    return true;
  }
  if (!operand_read(&x[0], product.dtype, device, &self)) {
    typed_release(&product);
    return false;
  }
  if (!scale(&self, beta)) {
    typed_release(&product);
    return false;
  }
  return apply2("add", &self, &product, out);
}

/* Reads all operands in their common dtype. */
static bool read_all(Operand* x, int count, uint32_t* dtype, int32_t device, Typed* out) {
  int kind = x[0].kind;
  for (int i = 1; i < count; ++i) {
    if (!x[i].number) {
      kind = torch.promote[kind][x[i].kind];
    }
  }
  *dtype = torch.weft_of[kind];
  for (int i = 0; i < count; ++i) {
    if (!operand_read(&x[i], *dtype, device, &out[i])) {
      while (i > 0) {
        typed_release(&out[--i]);
      }
      return false;
    }
  }
  return true;
}

/* self + value * (x op y) */
static bool body_addc(const Slot* slot, Operand* x, int count, const Operand* beta, const Operand* alpha, Typed* out) {
  Operand* operands[3] = {&x[0], &x[1], &x[2]};
  int32_t device = common_device(operands, 3);
  Typed values[3], product;
  uint32_t dtype = 0;
  (void)count;
  (void)beta;
  if (device < 0 || !read_all(x, 3, &dtype, device, values)) {
    return false;
  }
  if (!apply2(slot->operation, &values[1], &values[2], &product) || !scale(&product, alpha)) {
    typed_release(&values[0]);
    return false;
  }
  return apply2("add", &values[0], &product, out);
}

/* self + weight * (end - self), as torch computes it: from the other end where the weight is a half or more. */
static bool body_lerp(const Slot* slot, Operand* x, int count, const Operand* beta, const Operand* alpha, Typed* out) {
  Operand* operands[2] = {&x[0], &x[1]};
  int32_t device = common_device(operands, 2);
  Typed values[2], difference;
  uint32_t dtype = 0;
  (void)slot;
  (void)count;
  (void)beta;
  (void)alpha;
  if (device < 0 || !read_all(x, 2, &dtype, device, values)) {
    return false;
  }
  Operand weight = x[2];
  if (weight.complex) {
    error_set(WEFT_UNIMPLEMENTED, "lerp takes no complex weight on the device xla (docs/pytorch.md)");
    typed_release(&values[0]);
    typed_release(&values[1]);
    return false;
  }
  bool near = weight.number && (weight.integral ? weight.i < 1 : weight.d < 0.5);
  weft_tensor* inputs[2] = {values[1].handle, values[0].handle};
  bool good = apply("sub", inputs, 2, NULL, 0, device, &difference);
  if (good && !near) {
    weight.d = 1 - (weight.integral ? (double)weight.i : weight.d);
    weight.integral = false;
  }
  good = good && scale(&difference, &weight);
  if (!good) {
    typed_release(&values[0]);
    typed_release(&values[1]);
    return false;
  }
  if (near) {
    typed_release(&values[1]);
    return apply2("add", &values[0], &difference, out);
  }
  typed_release(&values[0]);
  return apply2("sub", &values[1], &difference, out);
}

/* The gradient where self is above a threshold: threshold_backward(grad, self, threshold). */
static bool body_threshold(const Slot* slot, Operand* x, int count, const Operand* beta, const Operand* alpha,
                           Typed* out) {
  Operand* operands[2] = {&x[0], &x[1]};
  int32_t device = common_device(operands, 2);
  Typed values[3], condition, zero;
  uint32_t dtype = 0;
  (void)slot;
  (void)beta;
  (void)alpha;
  (void)count;
  if (device < 0 || !read_all(x, 3, &dtype, device, values)) {
    return false;
  }
  if (!apply2("le", &values[1], &values[2], &condition)) {
    typed_release(&values[0]);
    return false;
  }
  bool good = scalar_f64(dtype, device, 0.0, &zero);
  if (good) {
    weft_tensor* inputs[3] = {condition.handle, zero.handle, values[0].handle};
    good = apply("where", inputs, 3, NULL, 0, device, out);
    typed_release(&zero);
  }
  typed_release(&condition);
  typed_release(&values[0]);
  return good;
}

static const struct {
  Body body;
  int tensors; /* how many positional operands there are at least */
} bodies[] = {{body_unary, 1}, {body_binary, 2}, {body_matmul, 2},    {body_addmm, 3},
              {body_addc, 3},  {body_lerp, 3},   {body_threshold, 3}};

static bool take_keyword(PyObject* name, PyObject* value, Operand* beta, Operand* alpha, bool* has_beta,
                         bool* has_alpha, PyObject** out_tensor) {
  const char* text = PyUnicode_AsUTF8AndSize(name, NULL);
  if (strcmp(text, "alpha") == 0 || strcmp(text, "value") == 0) {
    *has_alpha = true;
    return operand_of_object(value, alpha);
  }
  if (strcmp(text, "beta") == 0) {
    *has_beta = true;
    return operand_of_object(value, beta);
  }
  if (strcmp(text, "out") == 0 || strcmp(text, "grad_input") == 0) {
    *out_tensor = value;
    return true;
  }
  error_set(ERROR_TYPE, "unexpected argument '%s'", text);
  return false;
}

PyObject* callable_call(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* names) {
  Slot* slot = PyCapsule_GetPointer(self, "weft.kernel");
  Operand operands[MAX_OPERANDS], beta, alpha;
  bool has_beta = false, has_alpha = false;
  PyObject* out_tensor = NULL;
  if (slot == NULL || nargs > MAX_OPERANDS || nargs < bodies[slot->kind].tensors) {
    return PyErr_Format(PyExc_TypeError, "%zd arguments given to a kernel", nargs);
  }
  ++slot->calls;
  for (Py_ssize_t i = 0; i < nargs; ++i) {
    if (!operand_of_object(args[i], &operands[i])) {
      return error_python();
    }
  }
  for (Py_ssize_t i = 0; names != NULL && i < PyTuple_Size(names); ++i) {
    if (!take_keyword(PyTuple_GetItem(names, i), args[nargs + i], &beta, &alpha, &has_beta, &has_alpha, &out_tensor)) {
      return error_python();
    }
  }
  Typed value;
  if (!bodies[slot->kind].body(slot, operands, (int)nargs, has_beta ? &beta : NULL, has_alpha ? &alpha : NULL,
                               &value)) {
    return error_python();
  }
  if (out_tensor != NULL) {
    Operand target;
    if (!operand_of_object(out_tensor, &target)) {
      typed_release(&value);
      return error_python();
    }
    return write_out(out_tensor, &target, &value) ? Py_NewRef(out_tensor) : error_python();
  }
  if ((slot->flags & FLAG_INPLACE) != 0) {
    if (!write_result(&operands[0], &value, true)) {
      return error_python();
    }
    return Py_NewRef(args[0]);
  }
  Cell* cell = cell_new(value.dtype, value.device, value.ndim, value.dims, value.handle);
  PyObject* object = cell == NULL ? NULL : cell_object(cell);
  return object == NULL ? error_python() : object;
}

PyObject* callable_kernel(PyObject* function) {
  PyCFunction called = PyCFunction_Check(function) ? PyCFunction_GetFunction(function) : NULL;
  if (called != (PyCFunction)(void (*)(void))callable_call) {
    PyErr_SetString(PyExc_TypeError, "a kernel is wanted");
    return NULL;
  }
  return PyCFunction_GetSelf(function);
}

static PyMethodDef callable_method = {"weft_kernel", (PyCFunction)(void (*)(void))callable_call,
                                      METH_FASTCALL | METH_KEYWORDS, NULL};

static void slot_free(PyObject* capsule) { PyMem_Free(PyCapsule_GetPointer(capsule, "weft.kernel")); }

PyObject* callable_new(PyObject* self, PyObject* args) {
  (void)self;
  int kind = 0, flags = 0;
  const char* operation = NULL;
  if (!PyArg_ParseTuple(args, "iis", &kind, &flags, &operation)) {
    return NULL;
  }
  if (kind < 0 || kind >= (int)(sizeof bodies / sizeof *bodies)) {
    return PyErr_Format(PyExc_ValueError, "no kernel of kind %d", kind);
  }
  Slot* slot = PyMem_Calloc(1, sizeof(Slot));
  if (slot == NULL) {
    return PyErr_NoMemory();
  }
  slot->kind = (Kind)kind;
  slot->flags = flags;
  snprintf(slot->operation, sizeof slot->operation, "%s", operation);
  PyObject* capsule = PyCapsule_New(slot, "weft.kernel", slot_free);
  if (capsule == NULL) {
    PyMem_Free(slot);
    return NULL;
  }
  PyObject* out = PyCFunction_NewEx(&callable_method, capsule, NULL);
  Py_DECREF(capsule);
  return out;
}
