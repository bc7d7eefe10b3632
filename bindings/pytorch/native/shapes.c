/* Gradients of views and dense copies, one kernel each: Python's functions for torch, without Python code of ours. */
#include <string.h>

#include "weft_torch.h"

/* A gradient among zeros: every step-th index of one dimension, from `start`, is the gradient's next. */
static PyObject* spread(Tape* tape, const Typed* grad, int axis, int64_t size, int64_t start, int64_t step) {
  int64_t low[MAX_RANK] = {0}, high[MAX_RANK] = {0}, between[MAX_RANK] = {0};
  if (tape->good && axis >= grad->ndim) {
    error_set(WEFT_INVALID_ARGUMENT, "a gradient of %d dimensions has no dimension %d", (int)grad->ndim, axis);
    tape->good = false;
  }
  if (tape->good) {
    int64_t used = grad->dims[axis] > 0 ? (grad->dims[axis] - 1) * step + 1 : 0;
    low[axis] = start;
    high[axis] = size - start - used;
    between[axis] = step - 1;
  }
  size_t rank = (size_t)grad->ndim;
  weft_attr made[3] = {attr_ints("shape", low, 0),
                       attr_dtype("dtype", grad->dtype),
                       {.name = "value", .name_length = WEFT_STRLEN, .type = WEFT_VALUE_DOUBLE}};
  weft_attr attrs[3] = {attr_ints("edge_padding_low", low, rank), attr_ints("edge_padding_high", high, rank),
                        attr_ints("interior_padding", between, rank)};
  const Typed* out = tape_pad(tape, grad, tape_make(tape, "full", made, 3), attrs);
  return tape_end(tape, tape_tensor(tape, out));
}

/* The size of a dimension in a list of sizes; the dimension counts from the end where it is negative. -1: raised. */
static int64_t size_of(PyObject* sizes, int64_t* axis) {
  int64_t rank = PySequence_Size(sizes);
  if (rank < 1 || rank > MAX_RANK || *axis < -rank || *axis >= rank) {
    if (!PyErr_Occurred()) {
      PyErr_Format(PyExc_IndexError, "Dimension out of range (expected to be in range of [%lld, %lld], but got %lld)",
                   (long long)-rank, (long long)rank - 1, (long long)*axis);
    }
    return -1;
  }
  *axis += *axis < 0 ? rank : 0;
  PyObject* item = PySequence_GetItem(sizes, (Py_ssize_t)*axis);
  int64_t size = item == NULL ? -1 : PyLong_AsLongLong(item);
  Py_XDECREF(item);
  return size;
}

/* select_backward(gradient, sizes, dim, index) */
static PyObject* select_backward(PyObject* self, PyObject* const* args, Py_ssize_t nargs) {
  (void)self;
  Tape tape;
  Operand operand;
  int64_t dims[MAX_RANK + 1];
  if (nargs != 4) {
    return PyErr_Format(PyExc_TypeError, "select_backward takes 4 arguments, not %zd", nargs);
  }
  int64_t axis = PyLong_AsLongLong(args[2]), index = PyLong_AsLongLong(args[3]);
  int64_t size = PyErr_Occurred() ? -1 : size_of(args[1], &axis);
  if (size < 0) {
    return NULL;
  }
  tape_start(&tape, args, 1, &operand);
  const Typed* grad = tape_read(&tape, &operand);
  for (int i = 0; tape.good && i <= grad->ndim; ++i) {
    dims[i] = i == axis ? 1 : grad->dims[i > axis ? i - 1 : i];
  }
  return spread(&tape, tape_reshape(&tape, grad, dims, grad->ndim + 1), (int)axis, size,
                index < 0 ? index + size : index, 1);
}

static int64_t within(int64_t value, int64_t size) {
  value += value < 0 ? size : 0;
  return value < 0 ? 0 : value > size ? size : value;
}

/* slice_backward(gradient, sizes, dim, start, end, step) */
static PyObject* slice_backward(PyObject* self, PyObject* const* args, Py_ssize_t nargs) {
  (void)self;
  Tape tape;
  Operand operand;
  if (nargs != 6) {
    return PyErr_Format(PyExc_TypeError, "slice_backward takes 6 arguments, not %zd", nargs);
  }
  int64_t axis = PyLong_AsLongLong(args[2]), start = PyLong_AsLongLong(args[3]), step = PyLong_AsLongLong(args[5]);
  int64_t size = PyErr_Occurred() ? -1 : size_of(args[1], &axis);
  if (size < 0) {
    return NULL;
  }
  tape_start(&tape, args, 1, &operand);
  return spread(&tape, tape_read(&tape, &operand), (int)axis, size, within(start, size), step);
}

static PyObject *other_clones, *contiguous_format, *is_neg;

/* clones(function, format): for what `clone` leaves to Python, and torch.contiguous_format. */
static PyObject* clones(PyObject* self, PyObject* args) {
  (void)self;
  PyObject *function = NULL, *format = NULL;
  if (!PyArg_ParseTuple(args, "OO", &function, &format)) {
    return NULL;
  }
  Py_XDECREF(other_clones);
  Py_XDECREF(contiguous_format);
  other_clones = Py_NewRef(function);
  contiguous_format = Py_NewRef(format);
  is_neg = is_neg != NULL ? is_neg : PyUnicode_InternFromString("is_neg");
  return is_neg == NULL ? NULL : Py_NewRef(Py_None);
}

/* clone(tensor, memory_format=None) */
static PyObject* clone(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* keywords) {
  (void)self;
  Tape tape;
  Operand operand;
  PyObject* format = nargs + (keywords == NULL ? 0 : PyTuple_Size(keywords)) > 1 ? args[1] : Py_None;
  if (nargs < 1 || other_clones == NULL) {
    return PyErr_Format(PyExc_TypeError, "clone takes a tensor");
  }
  PyObject* negative = PyObject_CallMethodObjArgs(args[0], is_neg, NULL);
  if (negative == NULL) {
    return NULL;
  }
  Py_DECREF(negative);
  tape_start(&tape, args, 1, &operand);
  const View* view = &operand.view;
  bool plain = negative == Py_False && tape.good &&
               (format == contiguous_format || (format == Py_None && dense(view->ndim, view->sizes, view->strides)));
  if (tape.good && !plain) {
    return PyObject_CallFunctionObjArgs(other_clones, args[0], format, NULL);
  }
  return tape_end(&tape, tape_tensor(&tape, tape_read(&tape, &operand)));
}

PyMethodDef shape_methods[] = {
    {"select_backward", (PyCFunction)(void (*)(void))select_backward, METH_FASTCALL, "select's gradient."},
    {"slice_backward", (PyCFunction)(void (*)(void))slice_backward, METH_FASTCALL, "slice's gradient."},
    {"clones", clones, METH_VARARGS, "Says who clones what `clone` does not."},
    {"clone", (PyCFunction)(void (*)(void))clone, METH_FASTCALL | METH_KEYWORDS, "A copy."},
    {NULL, NULL, 0, NULL}};
