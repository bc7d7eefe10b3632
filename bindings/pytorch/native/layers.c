/* Dense layers as one kernel each, and lists of tensors as optimizers have them: what a training step asks for most. Python's
 * functions for torch, without Python code of ours.
 */
#include <stdio.h>
#include <string.h>

#include "weft_torch.h"

static weft_attr ints(const char* name, const int64_t* values, int count) {
  return attr_ints(name, values, (size_t)count);
}

/* The product that sums over the given dimensions of both. */
static bool contract(const Typed* a, const Typed* b, const int64_t* of_a, const int64_t* of_b, int count, Typed* out) {
  weft_tensor* inputs[2] = {a->handle, b->handle};
  weft_attr attrs[4] = {ints("lhs_batching_dimensions", of_a, 0), ints("rhs_batching_dimensions", of_b, 0),
                        ints("lhs_contracting_dimensions", of_a, count), ints("rhs_contracting_dimensions", of_b, count)};
  return apply("dot_general", inputs, 2, attrs, 4, a->device, out);
}

static bool linear_checked(Operand* x, Operand* w, Operand* bias, int32_t* device) {
  Operand* operands[3] = {x, w, bias};
  *device = common_device(operands, bias != NULL ? 3 : 2);
  if (*device < 0) {
    return false;
  }
  int n = x->view.ndim;
  int64_t rows = 1;
  for (int i = 0; i + 1 < n; ++i) {
    rows *= x->view.sizes[i];
  }
  if (x->number || w->number || n < 1 || w->view.ndim != 2 || x->view.sizes[n - 1] != w->view.sizes[1]) {
    error_set(WEFT_INVALID_ARGUMENT, "mat1 and mat2 shapes cannot be multiplied (%lldx%lld and %lldx%lld)",
              (long long)rows, n > 0 ? (long long)x->view.sizes[n - 1] : 1,
              w->view.ndim > 1 ? (long long)w->view.sizes[1] : 1, w->view.ndim > 0 ? (long long)w->view.sizes[0] : 1);
    return false;
  }
  if (x->kind != w->kind || (bias != NULL && bias->kind != w->kind)) {
    error_set(WEFT_INVALID_ARGUMENT, "mat1 and mat2 must have the same dtype, but got %s and %s",
              dtype_text(x->view.dtype), dtype_text(x->kind != w->kind ? w->view.dtype : bias->view.dtype));
    return false;
  }
  return true;
}

static PyObject* tensor_object(Typed* value) {
  Cell* cell = cell_new(value->dtype, value->device, value->ndim, value->dims, value->handle);
  PyObject* out = cell == NULL ? NULL : cell_object(cell);
  return out == NULL ? error_python() : out;
}

/* linear(input, weight, bias=None): input weight^T + bias */
static PyObject* linear(PyObject* self, PyObject* const* args, Py_ssize_t nargs) {
  (void)self;
  Operand x, w, bias;
  Typed a, b, c, product, out;
  int32_t device = 0;
  bool biased = nargs > 2 && args[2] != Py_None;
  if (nargs < 2 || nargs > 3) {
    return PyErr_Format(PyExc_TypeError, "linear takes 2 or 3 arguments, not %zd", nargs);
  }
  if (!operand_of_object(args[0], &x) || !operand_of_object(args[1], &w) ||
      (biased && !operand_of_object(args[2], &bias)) || !linear_checked(&x, &w, biased ? &bias : NULL, &device) ||
      !operand_read(&x, x.view.dtype, device, &a)) {
    return error_python();
  }
  if (!operand_read(&w, w.view.dtype, device, &b)) {
    typed_release(&a);
    return error_python();
  }
  int64_t last = a.ndim - 1, second = 1;
  bool good = contract(&a, &b, &last, &second, 1, &product);
  typed_release(&a);
  typed_release(&b);
  if (!good) {
    return error_python();
  }
  if (!biased) {
    return tensor_object(&product);
  }
  if (!operand_read(&bias, product.dtype, device, &c)) {
    typed_release(&product);
    return error_python();
  }
  return apply2("add", &product, &c, &out) ? tensor_object(&out) : error_python();
}

static bool conjugated(Typed* value) {
  return (value->dtype & 0xff) != 5 || step1("conj", value, NULL, 0);
}

static PyObject* gradient_object(bool good, Typed* value) { return good ? tensor_object(value) : error_python(); }

/* The gradients of input, weight and bias from their values; NULL where one fails. */
static bool linear_gradients(const Typed* x, const Typed* g, const Typed* w, const bool* wanted, PyObject** out) {
  int64_t leading[MAX_RANK], last = g->ndim - 1, first = 0;
  Typed value;
  for (int i = 0; i < last; ++i) {
    leading[i] = i;
  }
  if (wanted[0]) {
    out[0] = gradient_object(contract(g, w, &last, &first, 1, &value), &value);
  }
  if (wanted[1] && (!wanted[0] || out[0] != NULL)) {
    out[1] = gradient_object(contract(g, x, leading, leading, (int)last, &value), &value);
  }
  if (wanted[2] && !PyErr_Occurred()) {
    weft_attr attr = ints("dims", leading, (int)last);
    bool good = last > 0 ? apply1("sum", g, &attr, 1, &value)
                         : (attr = ints("shape", g->dims, g->ndim), apply1("reshape", g, &attr, 1, &value));
    out[2] = gradient_object(good, &value);
  }
  return !PyErr_Occurred();
}

/* linear_backward(input, grad_output, weight, wanted): a tuple of three, None where a gradient is not wanted. */
static PyObject* linear_backward(PyObject* self, PyObject* const* args, Py_ssize_t nargs) {
  (void)self;
  Operand operands[3];
  Typed values[3];
  bool wanted[3];
  PyObject* out[3] = {NULL, NULL, NULL};
  if (nargs != 4) {
    return PyErr_Format(PyExc_TypeError, "linear_backward takes 4 arguments, not %zd", nargs);
  }
  Operand* all[3] = {&operands[0], &operands[1], &operands[2]};
  if (!wanted_of(args[3], wanted)) {
    return NULL;
  }
  for (int i = 0; i < 3; ++i) {
    if (!operand_of_object(args[i], &operands[i])) {
      return error_python();
    }
  }
  int32_t device = common_device(all, 3);
  if (device < 0) {
    return error_python();
  }
  for (int i = 0; i < 3; ++i) {
    if (!operand_read(&operands[i], operands[i].view.dtype, device, &values[i]) ||
        (i != 1 && !conjugated(&values[i]))) {
      while (i > 0) {
        typed_release(&values[--i]);
      }
      return error_python();
    }
  }
  bool good = linear_gradients(&values[0], &values[1], &values[2], wanted, out);
  for (int i = 0; i < 3; ++i) {
    typed_release(&values[i]);
  }
  PyObject* tuple = good ? PyTuple_New(3) : NULL;
  for (int i = 0; i < 3; ++i) {
    if (tuple != NULL) {
      PyTuple_SetItem(tuple, i, out[i] != NULL ? out[i] : Py_NewRef(Py_None));
    } else {
      Py_XDECREF(out[i]);
    }
  }
  return tuple;
}

/* The i-th operand of a list kernel: an element where a list was given, else the number or tensor itself. Borrowed. */
static PyObject* element(PyObject* object, Py_ssize_t i, Py_ssize_t count) {
  if (!PyList_Check(object)) {
    return object;
  }
  if (PyList_Size(object) != count) {
    PyErr_Format(PyExc_RuntimeError, "Tensor lists must have the same number of tensors, got %zd and %zd", count,
                 PyList_Size(object));
    return NULL;
  }
  return PyList_GetItem(object, i);
}

/* foreach(kernel, list, others..., alpha): the result of a kernel of callable.c for each tensor of the list; others are
 * lists as long, or what all of them get.
 */
static PyObject* foreach(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* names) {
  (void)self;
  Py_ssize_t named = names == NULL ? 0 : PyTuple_Size(names);
  PyObject* given[8];
  if (nargs < 2 || nargs + named > 8 || !PyList_Check(args[1])) {
    return PyErr_Format(PyExc_TypeError, "a kernel and a list of tensors are wanted");
  }
  PyObject* kernel = callable_kernel(args[0]);
  Py_ssize_t count = PyList_Size(args[1]);
  PyObject* out = kernel == NULL ? NULL : PyList_New(count);
  Numbers numbers;
  numbers_share(&numbers);
  for (Py_ssize_t i = 0; out != NULL && i < count; ++i) {
    bool whole = true;
    for (Py_ssize_t k = 1; whole && k < nargs + named; ++k) {
      given[k] = element(args[k], i, count);
      whole = given[k] != NULL;
    }
    PyObject* result = whole ? callable_call(kernel, given + 1, nargs - 1, names) : NULL;
    if (result == NULL) {
      Py_CLEAR(out);
    } else {
      PyList_SetItem(out, i, result);
    }
  }
  numbers_end(&numbers);
  return out;
}

/* attention_fits(query, key, value): whether one operation computes it: tensors of the device, floating, of one dtype, with
 * elements, and with the same leading dimensions.
 */
static PyObject* attention_fits(PyObject* self, PyObject* const* args, Py_ssize_t nargs) {
  (void)self;
  View views[3];
  bool fits = nargs == 3;
  for (int i = 0; fits && i < 3; ++i) {
    if (!view_of_object(args[i], &views[i])) { /* another device's: torch computes or refuses it */
      PyErr_Clear();
      fits = false;
      break;
    }
    const View* first = &views[0];
    uint32_t code = views[i].dtype & 0xff;
    fits = views[i].cell != NULL && (code == 2 || code == 4) && views[i].dtype == first->dtype &&
           views[i].ndim >= 3 && views[i].ndim == first->ndim &&
           memcmp(views[i].sizes, first->sizes, (size_t)(first->ndim - 2) * sizeof *first->sizes) == 0;
  }
  return PyBool_FromLong(fits);
}

PyMethodDef layer_methods[] = {
    {"attention_fits", (PyCFunction)(void (*)(void))attention_fits, METH_FASTCALL, "Whether attention is one operation."},
    {"linear", (PyCFunction)(void (*)(void))linear, METH_FASTCALL, "A dense layer."},
    {"linear_backward", (PyCFunction)(void (*)(void))linear_backward, METH_FASTCALL, "Its gradients."},
    {"foreach", (PyCFunction)(void (*)(void))foreach, METH_FASTCALL | METH_KEYWORDS, "A kernel for each of a list."},
    {NULL, NULL, 0, NULL}};
