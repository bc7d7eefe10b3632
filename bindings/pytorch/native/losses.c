/* Softmax, the negative log likelihood and their gradients, one kernel each: Python's functions for torch, without
 * Python code of ours.
 */
#include <string.h>

#include "weft_torch.h"

/* A dimension that counts from the end where it is negative; -1: error_set. */
static int axis_checked(const View* view, int64_t dim) {
  int64_t rank = view->ndim > 0 ? view->ndim : 1;
  if (dim < -rank || dim >= rank) {
    error_set(WEFT_OUT_OF_RANGE, "Dimension out of range (expected to be in range of [%lld, %lld], but got %lld)",
              (long long)-rank, (long long)rank - 1, (long long)dim);
    return -1;
  }
  return (int)(dim < 0 ? dim + rank : dim);
}

static PyObject* softmax_of(const char* name, PyObject* const* args, Py_ssize_t nargs) {
  Tape tape;
  Operand x;
  if (nargs != 3) {
    return PyErr_Format(PyExc_TypeError, "%s takes 3 arguments, not %zd", name, nargs);
  }
  int64_t dim = PyLong_AsLongLong(args[1]), one = 1;
  if (PyErr_Occurred()) {
    return NULL;
  }
  tape_start(&tape, args, 1, &x);
  int axis = tape.good ? axis_checked(&x.view, dim) : -1;
  tape.good = axis >= 0;
  const Typed* value = tape_read(&tape, &x);
  value = args[2] == Py_True ? tape_as(&tape, value, WEFT_F32) : value;
  weft_attr attr = attr_int("axis", axis);
  if (value->ndim > 0) {
    value = tape_with(&tape, name, value, &attr, 1);
  } else {
    value = tape_with(&tape, name, tape_reshape(&tape, value, &one, 1), &attr, 1);
    value = tape_reshape(&tape, value, &one, 0);
  }
  return tape_end(&tape, tape_tensor(&tape, value));
}

/* softmax(x, dim, half_to_float) */
static PyObject* softmax(PyObject* self, PyObject* const* args, Py_ssize_t nargs) {
  (void)self;
  return softmax_of("softmax", args, nargs);
}

static PyObject* log_softmax(PyObject* self, PyObject* const* args, Py_ssize_t nargs) {
  (void)self;
  return softmax_of("log_softmax", args, nargs);
}

static PyObject* softmax_gradient(bool logarithm, PyObject* const* args, Py_ssize_t nargs) {
  Tape tape;
  Operand operands[2];
  if (nargs != 4) {
    return PyErr_Format(PyExc_TypeError, "a gradient of softmax takes 4 arguments, not %zd", nargs);
  }
  int64_t dim = PyLong_AsLongLong(args[2]);
  uint32_t dtype = (uint32_t)PyLong_AsUnsignedLong(args[3]);
  if (PyErr_Occurred()) {
    return NULL;
  }
  tape_start(&tape, args, 2, operands);
  int axis = tape.good ? axis_checked(&operands[0].view, dim) : -1;
  tape.good = axis >= 0;
  int64_t dims = axis;
  const Typed* g = tape_working(&tape, tape_read(&tape, &operands[0]));
  const Typed* y = tape_working(&tape, tape_read(&tape, &operands[1]));
  const Typed* out;
  if (g->ndim == 0) { /* always the same result, whose gradient is 0 */
    out = tape_2(&tape, "mul", g, tape_number(&tape, g->dtype, 0));
  } else if (logarithm) {
    const Typed* total = tape_reduce(&tape, "sum", g, &dims, 1, true);
    out = tape_2(&tape, "sub", g, tape_2(&tape, "mul", tape_1(&tape, "exp", y), total));
  } else {
    const Typed* product = tape_2(&tape, "mul", g, y);
    const Typed* total = tape_reduce(&tape, "sum", product, &dims, 1, true);
    out = tape_2(&tape, "sub", product, tape_2(&tape, "mul", y, total));
  }
  return tape_end(&tape, tape_tensor(&tape, tape_as(&tape, out, dtype)));
}

/* softmax_backward(gradient, result, dim, dtype) */
static PyObject* softmax_backward(PyObject* self, PyObject* const* args, Py_ssize_t nargs) {
  (void)self;
  return softmax_gradient(false, args, nargs);
}

static PyObject* log_softmax_backward(PyObject* self, PyObject* const* args, Py_ssize_t nargs) {
  (void)self;
  return softmax_gradient(true, args, nargs);
}

/* The parts that both directions of the negative log likelihood share. */
typedef struct Likelihood {
  Tape tape;
  const Typed *x, *zero, *chosen, *weights; /* chosen: one-hot along the classes; weights: NULL where there are none */
  int axis;
} Likelihood;

static void likelihood_start(Likelihood* made, const Operand* x, const Operand* target, const Operand* weight,
                             int64_t ignored) {
  Tape* tape = &made->tape;
  int64_t dims[MAX_RANK];
  made->x = tape_read(tape, x);
  const Typed* labels = tape_read(tape, target);
  int rank = made->x->ndim;
  made->axis = rank == 1 ? 0 : 1;
  if (rank == labels->ndim + 1) {
    for (int i = 0; i < rank; ++i) {
      dims[i] = i == made->axis ? 1 : labels->dims[i > made->axis ? i - 1 : i];
    }
    labels = tape_reshape(tape, labels, dims, rank);
  }
  weft_attr attrs[3] = {attr_ints("shape", made->x->dims, (size_t)rank), attr_int("dimension", made->axis),
                        attr_dtype("dtype", labels->dtype)};
  const Typed* classes = tape_make(tape, "iota", attrs, 3);
  const Typed* counted = tape_2(tape, "ne", labels, tape_integer(tape, labels->dtype, ignored));
  made->chosen = tape_2(tape, "bitwise_and", tape_2(tape, "eq", classes, labels), counted);
  made->zero = tape_number(tape, made->x->dtype, 0);
  made->weights = NULL;
  if (weight->object != NULL) {
    for (int i = 0; i < rank; ++i) {
      dims[i] = i == made->axis ? made->x->dims[i] : 1;
    }
    made->weights = tape_reshape(tape, tape_read(tape, weight), dims, rank);
  }
}

static bool likelihood_numbers(PyObject* reduction, PyObject* ignored, int64_t* out) {
  out[0] = PyLong_AsLongLong(reduction);
  out[1] = PyLong_AsLongLong(ignored);
  return !PyErr_Occurred();
}

/* nll_loss(x, target, weight, reduction, ignored): the loss, and the sum of the weights that it was divided by. */
static PyObject* nll_loss(PyObject* self, PyObject* const* args, Py_ssize_t nargs) {
  (void)self;
  Likelihood made;
  Operand operands[3];
  int64_t numbers[2], every[MAX_RANK];
  if (nargs != 5) {
    return PyErr_Format(PyExc_TypeError, "nll_loss takes 5 arguments, not %zd", nargs);
  }
  if (!likelihood_numbers(args[3], args[4], numbers)) {
    return NULL;
  }
  Tape* tape = &made.tape;
  tape_start(tape, args, 3, operands);
  likelihood_start(&made, &operands[0], &operands[1], &operands[2], numbers[1]);
  const Typed* one = tape_number(tape, made.x->dtype, 1);
  const Typed* counted = tape_3(tape, "where", made.chosen, one, made.zero);
  counted = made.weights != NULL ? tape_2(tape, "mul", counted, made.weights) : counted;
  const Typed* product = tape_2(tape, "mul", made.x, counted);
  const Typed* loss = tape_1(tape, "neg", tape_3(tape, "where", made.chosen, product, made.zero));
  const Typed* results[2];
  if (numbers[0] == 0) {
    every[0] = made.axis;
    results[0] = tape_reduce(tape, "sum", loss, every, 1, false);
    results[1] = made.zero;
  } else {
    for (int i = 0; i < made.x->ndim; ++i) {
      every[i] = i;
    }
    results[0] = tape_reduce(tape, "sum", loss, every, made.x->ndim, false);
    results[1] = tape_reduce(tape, "sum", counted, every, made.x->ndim, false);
    results[0] = numbers[0] == 1 ? tape_2(tape, "div", results[0], results[1]) : results[0];
  }
  return tape_end(tape, tape_tensors(tape, results, 2));
}

/* nll_loss_backward(gradient, x, target, weight, reduction, ignored, divisor) */
static PyObject* nll_loss_backward(PyObject* self, PyObject* const* args, Py_ssize_t nargs) {
  (void)self;
  Likelihood made;
  Operand operands[5];
  int64_t numbers[2], dims[MAX_RANK];
  if (nargs != 7) {
    return PyErr_Format(PyExc_TypeError, "nll_loss_backward takes 7 arguments, not %zd", nargs);
  }
  if (!likelihood_numbers(args[4], args[5], numbers)) {
    return NULL;
  }
  Tape* tape = &made.tape;
  PyObject* objects[5] = {args[0], args[1], args[2], args[3], args[6]};
  tape_start(tape, objects, 5, operands);
  likelihood_start(&made, &operands[1], &operands[2], &operands[3], numbers[1]);
  const Typed* g = tape_read(tape, &operands[0]);
  if (numbers[0] == 1) {
    g = tape_2(tape, "div", g, tape_read(tape, &operands[4]));
  } else if (numbers[0] == 0 && made.x->ndim > 1) {
    for (int i = 0; i < made.x->ndim; ++i) {
      dims[i] = i == made.axis ? 1 : g->dims[i > made.axis ? i - 1 : i];
    }
    g = tape_reshape(tape, g, dims, made.x->ndim);
  }
  const Typed* factor = tape_1(tape, "neg", g);
  factor = made.weights != NULL ? tape_2(tape, "mul", factor, made.weights) : factor;
  const Typed* out = tape_3(tape, "where", made.chosen, factor, made.zero);
  return tape_end(tape, tape_tensor(tape, out));
}

PyMethodDef loss_methods[] = {
    {"softmax", (PyCFunction)(void (*)(void))softmax, METH_FASTCALL, "Shares of the exponentials."},
    {"log_softmax", (PyCFunction)(void (*)(void))log_softmax, METH_FASTCALL, "Their logarithms."},
    {"softmax_backward", (PyCFunction)(void (*)(void))softmax_backward, METH_FASTCALL, "softmax's gradient."},
    {"log_softmax_backward", (PyCFunction)(void (*)(void))log_softmax_backward, METH_FASTCALL, "log_softmax's."},
    {"nll_loss", (PyCFunction)(void (*)(void))nll_loss, METH_FASTCALL, "The negative log likelihood."},
    {"nll_loss_backward", (PyCFunction)(void (*)(void))nll_loss_backward, METH_FASTCALL, "Its gradient."},
    {NULL, NULL, 0, NULL}};
