/* Batch normalisation and its gradients, one kernel each: Python's functions for torch, without Python code of ours. */
#include "weft_torch.h"

/* Places of operands. The gradient takes the bias's, which the backward direction does not have. */
enum { INPUT, WEIGHT, BIAS, RUNNING_MEAN, RUNNING_VARIANCE, FORWARD_OPERANDS };
enum { GRAD = BIAS, SAVED_MEAN = FORWARD_OPERANDS, SAVED_DEVIATION, BACKWARD_OPERANDS };

/* The parts that both directions share. */
typedef struct Channels {
  Tape tape;
  Operand operands[BACKWARD_OPERANDS];
  int64_t dims[MAX_RANK];   /* the shape of one number a channel that broadcasts with the input */
  int64_t others[MAX_RANK]; /* the dimensions that are summed over */
  int rank;
  double count; /* numbers of a channel */
} Channels;

/* Finds the shapes. Checks that weight, bias and statistics, where they are given, have one number a channel. */
static void channels_start(Channels* made, PyObject* const* objects, int count, bool backward) {
  static const char* const names[] = {"", "weight", "bias", "running_mean", "running_var", "save_mean", "save_invstd"};
  Tape* tape = &made->tape;
  tape_start(tape, objects, count, made->operands);
  const View* x = &made->operands[INPUT].view;
  if (tape->good && (x->ndim < 2 || x->ndim > MAX_RANK)) {
    error_set(WEFT_INVALID_ARGUMENT, "batch norm takes a tensor of 2 to %d dimensions, not one of %d", MAX_RANK,
              (int)x->ndim);
    tape->good = false;
  }
  for (int i = WEIGHT; tape->good && i < count; ++i) {
    const View* view = &made->operands[i].view;
    if (made->operands[i].object != NULL && !(backward && i == GRAD) &&
        (view->ndim != 1 || view->sizes[0] != x->sizes[1])) {
      error_set(WEFT_INVALID_ARGUMENT, "%s should contain %lld elements not %lld", names[i], (long long)x->sizes[1],
                (long long)view->count);
      tape->good = false;
    }
  }
  made->rank = tape->good ? x->ndim : 0;
  made->count = made->rank > 0 && x->sizes[1] > 0 ? (double)(x->count / x->sizes[1]) : 0;
  for (int i = 0; i < made->rank; ++i) {
    made->dims[i] = i == 1 ? x->sizes[1] : 1;
    made->others[i > 1 ? i - 1 : i] = i; /* 1 is written over */
  }
}

static const Typed* broadcast(Channels* made, const Typed* value) {
  return tape_reshape(&made->tape, value, made->dims, made->rank);
}

static const Typed* summed(Channels* made, const char* name, const Typed* value) {
  return tape_reduce(&made->tape, name, value, made->others, made->rank - 1, false);
}

static const Typed* read_as(Channels* made, int operand, uint32_t dtype) {
  return tape_as(&made->tape, tape_read(&made->tape, &made->operands[operand]), dtype);
}

static const Typed* scaled(Tape* tape, const Typed* value, double number) {
  return tape_2(tape, "mul", value, tape_number(tape, value->dtype, number));
}

static const Typed* one_over_deviation(Tape* tape, const Typed* variance, double eps) {
  return tape_1(tape, "rsqrt", tape_2(tape, "add", variance, tape_number(tape, variance->dtype, eps)));
}

/* running = (1 - momentum) * running + momentum * batch, where there is one */
static void move(Channels* made, int operand, const Typed* batch, double momentum) {
  Tape* tape = &made->tape;
  if (tape->good && made->operands[operand].object != NULL) {
    const Typed* old = tape_read(tape, &made->operands[operand]);
    const Typed* share = scaled(tape, tape_as(tape, batch, old->dtype), momentum);
    tape_write(tape, &made->operands[operand], tape_2(tape, "add", scaled(tape, old, 1 - momentum), share));
  }
}

/* A tensor without elements, for what is not computed. */
static PyObject* no_elements(const Typed* like) {
  int64_t size = 0;
  Cell* cell = cell_new(like->dtype, like->device, 1, &size, NULL);
  PyObject* out = cell == NULL ? NULL : cell_object(cell);
  return out == NULL ? error_python() : out;
}

/* The tuple of a result whose statistics were given. */
static PyObject* result_alone(Tape* tape, const Typed* result, const Typed* like) {
  PyObject* first = tape_tensor(tape, result);
  PyObject* second = first == NULL ? NULL : no_elements(like);
  PyObject* third = second == NULL ? NULL : no_elements(like);
  PyObject* out = third == NULL ? NULL : PyTuple_Pack(3, first, second, third);
  Py_XDECREF(first);
  Py_XDECREF(second);
  Py_XDECREF(third);
  return out;
}

/* batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps): the result, the means, one over
 * the deviations; the last two have no elements without training. Training moves the running statistics.
 */
static PyObject* batch_norm(PyObject* self, PyObject* const* args, Py_ssize_t nargs) {
  (void)self;
  Channels made;
  if (nargs != 8) {
    return PyErr_Format(PyExc_TypeError, "batch_norm takes 8 arguments, not %zd", nargs);
  }
  bool training = args[5] == Py_True;
  double momentum = PyFloat_AsDouble(args[6]), eps = PyFloat_AsDouble(args[7]);
  if (PyErr_Occurred()) {
    return NULL;
  }
  if (!training && (args[3] == Py_None || args[4] == Py_None)) {
    return PyErr_Format(PyExc_RuntimeError, "Expected running_mean and running_var to be defined when training=False");
  }
  Tape* tape = &made.tape;
  channels_start(&made, args, FORWARD_OPERANDS, false);
  const Typed* x = tape_read(tape, &made.operands[INPUT]);
  const Typed* wide = tape_working(tape, x);
  const Typed* mean = training ? summed(&made, "mean", wide) : read_as(&made, RUNNING_MEAN, wide->dtype);
  const Typed* centred = tape_2(tape, "sub", wide, broadcast(&made, mean));
  const Typed* variance;
  if (training) {
    double n = made.count;
    variance = summed(&made, "mean", tape_1(tape, "square", centred));
    move(&made, RUNNING_MEAN, mean, momentum);
    move(&made, RUNNING_VARIANCE, args[4] == Py_None ? variance : scaled(tape, variance, n / (n > 2 ? n - 1 : 1)),
         momentum);
  } else {
    variance = read_as(&made, RUNNING_VARIANCE, wide->dtype);
  }
  const Typed* invstd = one_over_deviation(tape, variance, eps);
  const Typed* factor = args[1] == Py_None ? invstd : tape_2(tape, "mul", invstd, read_as(&made, WEIGHT, wide->dtype));
  const Typed* out = tape_2(tape, "mul", centred, broadcast(&made, factor));
  if (args[2] != Py_None) {
    out = tape_2(tape, "add", out, broadcast(&made, read_as(&made, BIAS, wide->dtype)));
  }
  out = tape_as(tape, out, x->dtype);
  const Typed* results[3] = {out, mean, invstd};
  return tape_end(tape, training ? tape_tensors(tape, results, 3) : result_alone(tape, out, wide));
}

/* The gradient of the input. total, along: sums of the gradient, and of it times the distances from the mean. */
static const Typed* input_gradient(Channels* made, const Typed* g, const Typed* centred, const Typed* invstd,
                                   const Typed* total, const Typed* along, bool training) {
  Tape* tape = &made->tape;
  const Typed* factor = invstd;
  if (made->operands[WEIGHT].object != NULL) {
    factor = tape_2(tape, "mul", invstd, read_as(made, WEIGHT, g->dtype));
  }
  const Typed* inner = g;
  if (training) {
    const Typed* share = tape_number(tape, g->dtype, made->count > 0 ? 1 / made->count : 0);
    const Typed* slope = tape_2(tape, "mul", tape_1(tape, "square", invstd), tape_2(tape, "mul", along, share));
    inner = tape_2(tape, "sub", g, broadcast(made, tape_2(tape, "mul", total, share)));
    inner = tape_2(tape, "sub", inner, tape_2(tape, "mul", centred, broadcast(made, slope)));
  }
  return tape_2(tape, "mul", inner, broadcast(made, factor));
}

/* batch_norm_backward(grad, input, weight, running_mean, running_var, mean, invstd, training, eps, wanted): three, None
 * where not wanted.
 */
static PyObject* batch_norm_backward(PyObject* self, PyObject* const* args, Py_ssize_t nargs) {
  (void)self;
  Channels made;
  bool wanted[3];
  if (nargs != 10) {
    return PyErr_Format(PyExc_TypeError, "batch_norm_backward takes 10 arguments, not %zd", nargs);
  }
  bool training = args[7] == Py_True;
  double eps = PyFloat_AsDouble(args[8]);
  if (PyErr_Occurred() || !wanted_of(args[9], wanted)) {
    return NULL;
  }
  if (args[training ? 5 : 3] == Py_None || args[training ? 6 : 4] == Py_None) {
    return PyErr_Format(PyExc_RuntimeError,
                        "the gradient of batch norm lacks the statistics that it was computed with");
  }
  PyObject* objects[BACKWARD_OPERANDS] = {
      args[1], args[2], args[0], args[3], args[4], training ? args[5] : Py_None, training ? args[6] : Py_None};
  Tape* tape = &made.tape;
  channels_start(&made, objects, BACKWARD_OPERANDS, true);
  const Typed* input = tape_read(tape, &made.operands[INPUT]);
  const Typed* x = tape_working(tape, input);
  const Typed* g = tape_working(tape, tape_read(tape, &made.operands[GRAD]));
  const Typed* mean = read_as(&made, training ? SAVED_MEAN : RUNNING_MEAN, x->dtype);
  const Typed* invstd = read_as(&made, training ? SAVED_DEVIATION : RUNNING_VARIANCE, x->dtype);
  invstd = training ? invstd : one_over_deviation(tape, invstd, eps);
  const Typed* centred = tape_2(tape, "sub", x, broadcast(&made, mean));
  const Typed* total = summed(&made, "sum", g);
  const Typed* along = summed(&made, "sum", tape_2(tape, "mul", g, centred));
  const Typed* results[3] = {NULL, NULL, NULL};
  if (wanted[0]) {
    results[0] = tape_as(tape, input_gradient(&made, g, centred, invstd, total, along, training), input->dtype);
  }
  uint32_t kept = tape->good && args[2] != Py_None ? made.operands[WEIGHT].view.dtype : x->dtype;
  results[1] = wanted[1] ? tape_as(tape, tape_2(tape, "mul", along, invstd), kept) : NULL;
  results[2] = wanted[2] ? tape_as(tape, total, kept) : NULL;
  return tape_end(tape, tape_tensors(tape, results, 3));
}

PyMethodDef batch_norm_methods[] = {
    {"batch_norm", (PyCFunction)(void (*)(void))batch_norm, METH_FASTCALL, "Batch normalisation."},
    {"batch_norm_backward", (PyCFunction)(void (*)(void))batch_norm_backward, METH_FASTCALL, "Its gradients."},
    {NULL, NULL, 0, NULL}};
