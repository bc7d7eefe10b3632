/* Layer normalisation and its gradients, one kernel each: Python's functions for torch, without Python code of ours. */
#include <stdio.h>
#include <string.h>

#include "weft_torch.h"

enum { NAMED = 128 };

/* Sizes as torch's texts have them: [2, 3]. */
static void sizes_text(char* out, size_t room, int count, const int64_t* sizes, bool behind_others) {
  int used = snprintf(out, room, behind_others ? "[*" : "[");
  for (int i = 0; i < count && used < (int)room; ++i) {
    used +=
        snprintf(out + used, room - (size_t)used, "%s%lld", i > 0 || behind_others ? ", " : "", (long long)sizes[i]);
  }
  if (used < (int)room) {
    snprintf(out + used, room - (size_t)used, "]");
  }
}

static bool same_sizes(const View* view, int count, const int64_t* sizes) {
  return view->ndim == count && memcmp(view->sizes, sizes, (size_t)count * sizeof *sizes) == 0;
}

/* How many last dimensions are normalised: those that the list names. -1: the tape is not good. */
static int normalized_count(Tape* tape, PyObject* list, Operand* x, Operand* const* others, const char* const* names) {
  int64_t sizes[MAX_RANK];
  char shape[NAMED], given[NAMED];
  Py_ssize_t count = PySequence_Size(list);
  for (Py_ssize_t i = 0; tape->good && i < count && i < MAX_RANK; ++i) {
    PyObject* item = PySequence_GetItem(list, i);
    sizes[i] = item == NULL ? -1 : PyLong_AsLongLong(item);
    Py_XDECREF(item);
  }
  int outer = x->view.ndim - (int)count;
  if (!tape->good || PyErr_Occurred()) {
    tape->good = false;
    return -1;
  }
  if (count < 1 || outer < 0 || memcmp(x->view.sizes + outer, sizes, (size_t)count * sizeof *sizes) != 0) {
    sizes_text(shape, sizeof shape, count < MAX_RANK ? (int)count : MAX_RANK, sizes, false);
    char wanted[NAMED];
    sizes_text(wanted, sizeof wanted, count < MAX_RANK ? (int)count : MAX_RANK, sizes, true);
    sizes_text(given, sizeof given, x->view.ndim, x->view.sizes, false);
    error_set(WEFT_INVALID_ARGUMENT, "Given normalized_shape=%s, expected input with shape %s, but got input of size%s",
              shape, wanted, given);
    tape->good = false;
    return -1;
  }
  for (int i = 0; i < 2; ++i) {
    if (others[i]->object != NULL && !same_sizes(&others[i]->view, (int)count, sizes)) {
      sizes_text(shape, sizeof shape, (int)count, sizes, false);
      sizes_text(given, sizeof given, others[i]->view.ndim, others[i]->view.sizes, false);
      error_set(WEFT_INVALID_ARGUMENT,
                "Expected %s to be of same shape as normalized_shape, but got %s of shape %s and normalized_shape = %s",
                names[i], names[i], given, shape);
      tape->good = false;
      return -1;
    }
  }
  return (int)count;
}

static const char* const names[2] = {"weight", "bias"};

/* native_layer_norm(input, normalized_shape, weight, bias, eps): the result, the means, one over the deviations. */
static PyObject* layer_norm(PyObject* self, PyObject* const* args, Py_ssize_t nargs) {
  (void)self;
  Tape tape;
  Operand operands[3]; /* input, weight, bias */
  if (nargs != 5) {
    return PyErr_Format(PyExc_TypeError, "layer_norm takes 5 arguments, not %zd", nargs);
  }
  PyObject* objects[3] = {args[0], args[2], args[3]};
  Operand* others[2] = {&operands[1], &operands[2]};
  tape_start(&tape, objects, 3, operands);
  int count = normalized_count(&tape, args[1], &operands[0], others, names);
  double eps = PyFloat_AsDouble(args[4]);
  if (PyErr_Occurred()) {
    return tape_end(&tape, NULL);
  }
  int64_t dims[MAX_RANK];
  int outer = operands[0].view.ndim - count;
  for (int i = 0; i < count; ++i) {
    dims[i] = outer + i;
  }
  const Typed* x = tape_read(&tape, &operands[0]);
  const Typed* wide = tape_working(&tape, x);
  const Typed* mean = tape_reduce(&tape, "mean", wide, dims, count, true);
  const Typed* centred = tape_2(&tape, "sub", wide, mean);
  const Typed* variance = tape_reduce(&tape, "mean", tape_1(&tape, "square", centred), dims, count, true);
  const Typed* rstd = tape_1(&tape, "rsqrt", tape_2(&tape, "add", variance, tape_number(&tape, wide->dtype, eps)));
  const Typed* out = tape_2(&tape, "mul", centred, rstd);
  if (operands[1].object != NULL) {
    out = tape_2(&tape, "mul", out, tape_as(&tape, tape_read(&tape, &operands[1]), wide->dtype));
  }
  if (operands[2].object != NULL) {
    out = tape_2(&tape, "add", out, tape_as(&tape, tape_read(&tape, &operands[2]), wide->dtype));
  }
  const Typed* results[3] = {tape_as(&tape, out, x->dtype), mean, rstd};
  return tape_end(&tape, tape_tensors(&tape, results, 3));
}

/* The gradient of the input, from the gradient of what was normalised. */
static const Typed* input_gradient(Tape* tape, const Typed* scaled, const Typed* normal, const Typed* rstd,
                                   const int64_t* dims, int count) {
  const Typed* first = tape_reduce(tape, "mean", scaled, dims, count, true);
  const Typed* second = tape_reduce(tape, "mean", tape_2(tape, "mul", scaled, normal), dims, count, true);
  const Typed* inner = tape_2(tape, "sub", tape_2(tape, "sub", scaled, first), tape_2(tape, "mul", normal, second));
  return tape_2(tape, "mul", inner, rstd);
}

/* native_layer_norm_backward(grad, input, normalized_shape, mean, rstd, weight, bias, wanted): three, None where not
 * wanted.
 */
static PyObject* layer_norm_backward(PyObject* self, PyObject* const* args, Py_ssize_t nargs) {
  (void)self;
  Tape tape;
  Operand operands[6]; /* grad, input, mean, rstd, weight, bias */
  bool wanted[3];
  if (nargs != 8) {
    return PyErr_Format(PyExc_TypeError, "layer_norm_backward takes 8 arguments, not %zd", nargs);
  }
  if (!wanted_of(args[7], wanted)) {
    return NULL;
  }
  PyObject* objects[6] = {args[0], args[1], args[3], args[4], args[5], args[6]};
  Operand* others[2] = {&operands[4], &operands[5]};
  tape_start(&tape, objects, 6, operands);
  int count = normalized_count(&tape, args[2], &operands[1], others, names);
  if (PyErr_Occurred()) {
    return tape_end(&tape, NULL);
  }
  int64_t dims[MAX_RANK], leading[MAX_RANK];
  int outer = operands[1].view.ndim - count;
  for (int i = 0; tape.good && i < operands[1].view.ndim; ++i) {
    (i < outer ? leading : dims)[i < outer ? i : i - outer] = i;
  }
  const Typed* x = tape_read(&tape, &operands[1]);
  const Typed* g = tape_working(&tape, tape_read(&tape, &operands[0]));
  const Typed* rstd = tape_read(&tape, &operands[3]);
  const Typed* centred = tape_2(&tape, "sub", tape_working(&tape, x), tape_read(&tape, &operands[2]));
  const Typed* normal = tape_2(&tape, "mul", centred, rstd);
  const Typed* results[3] = {NULL, NULL, NULL};
  const Typed* weight = operands[4].object != NULL ? tape_read(&tape, &operands[4]) : NULL;
  if (wanted[0]) {
    const Typed* scaled = weight != NULL ? tape_2(&tape, "mul", g, tape_as(&tape, weight, g->dtype)) : g;
    results[0] = tape_as(&tape, input_gradient(&tape, scaled, normal, rstd, dims, count), x->dtype);
  }
  if (wanted[1] && weight != NULL) {
    const Typed* product = tape_2(&tape, "mul", g, normal);
    results[1] = tape_as(&tape, tape_reduce(&tape, "sum", product, leading, outer, false), weight->dtype);
  }
  if (wanted[2] && operands[5].object != NULL) {
    results[2] = tape_as(&tape, tape_reduce(&tape, "sum", g, leading, outer, false), operands[5].view.dtype);
  }
  return tape_end(&tape, tape_tensors(&tape, results, 3));
}

PyMethodDef norm_methods[] = {
    {"layer_norm", (PyCFunction)(void (*)(void))layer_norm, METH_FASTCALL, "Layer normalisation."},
    {"layer_norm_backward", (PyCFunction)(void (*)(void))layer_norm_backward, METH_FASTCALL, "Its gradients."},
    {NULL, NULL, 0, NULL}};
