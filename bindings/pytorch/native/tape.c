/* Tapes: operations of Weft's one after the other, for kernels in C that are put together from several. Every value
 * that a tape made or read is released at its end. After an error nothing more is made, so that only the end asks for
 * it.
 */
#include <string.h>

#include "weft_torch.h"

static const Typed nothing;

static const Typed* tape_keep(Tape* tape, bool good, const Typed* value, bool lent) {
  tape->good = good;
  if (!good) {
    return &nothing;
  }
  tape->made[tape->count] = *value;
  tape->lent[tape->count] = lent;
  return &tape->made[tape->count++];
}

static bool tape_goes_on(Tape* tape) {
  if (tape->good && tape->count == TAPE_VALUES) {
    error_set(WEFT_INTERNAL, "a kernel of more than %d values", TAPE_VALUES);
    tape->good = false;
  }
  return tape->good;
}

void tape_start(Tape* tape, PyObject* const* objects, int count, Operand* operands) {
  Operand* given[TAPE_OPERANDS];
  size_t used = 0;
  tape->count = 0;
  tape->good = count <= TAPE_OPERANDS;
  for (int i = 0; i < count; ++i) {
    operands[i].object = NULL;
  }
  for (int i = 0; i < count && tape->good; ++i) {
    if (objects[i] != Py_None) {
      tape->good = operand_of_object(objects[i], &operands[i]);
      given[used++] = &operands[i];
    }
  }
  tape->device = tape->good ? common_device(given, used) : -1;
  tape->good = tape->device >= 0;
}

const Typed* tape_read(Tape* tape, const Operand* operand) {
  Typed value;
  if (!tape_goes_on(tape)) {
    return &nothing;
  }
  bool good = operand_read(operand, operand->view.dtype, tape->device, &value);
  return tape_keep(tape, good, &value, true);
}

static const Typed* tape_apply(Tape* tape, const char* name, const Typed* const* operands, size_t count,
                               const weft_attr* attrs, size_t attr_count) {
  weft_tensor* inputs[3];
  Typed value;
  if (!tape_goes_on(tape)) {
    return &nothing;
  }
  for (size_t i = 0; i < count; ++i) {
    inputs[i] = operands[i]->handle;
  }
  bool good = apply(name, inputs, count, attrs, attr_count, tape->device, &value);
  return tape_keep(tape, good, &value, false);
}

const Typed* tape_make(Tape* tape, const char* name, const weft_attr* attrs, size_t attr_count) {
  return tape_apply(tape, name, NULL, 0, attrs, attr_count);
}

const Typed* tape_with(Tape* tape, const char* name, const Typed* x, const weft_attr* attrs, size_t attr_count) {
  return tape_apply(tape, name, &x, 1, attrs, attr_count);
}

const Typed* tape_1(Tape* tape, const char* name, const Typed* x) { return tape_apply(tape, name, &x, 1, NULL, 0); }

const Typed* tape_2(Tape* tape, const char* name, const Typed* x, const Typed* y) {
  const Typed* operands[2] = {x, y};
  return tape_apply(tape, name, operands, 2, NULL, 0);
}

const Typed* tape_3(Tape* tape, const char* name, const Typed* x, const Typed* y, const Typed* z) {
  const Typed* operands[3] = {x, y, z};
  return tape_apply(tape, name, operands, 3, NULL, 0);
}

const Typed* tape_pad(Tape* tape, const Typed* x, const Typed* filler, const weft_attr* attrs) {
  const Typed* operands[2] = {x, filler};
  return tape_apply(tape, "pad", operands, 2, attrs, 3);
}

const Typed* tape_number(Tape* tape, uint32_t dtype, double number) {
  Typed value;
  if (!tape_goes_on(tape)) {
    return &nothing;
  }
  bool good = scalar_f64(dtype, tape->device, number, &value);
  return tape_keep(tape, good, &value, false);
}

const Typed* tape_integer(Tape* tape, uint32_t dtype, int64_t number) {
  Typed value;
  if (!tape_goes_on(tape)) {
    return &nothing;
  }
  bool good = scalar_i64(dtype, tape->device, number, &value);
  return tape_keep(tape, good, &value, false);
}

const Typed* tape_as(Tape* tape, const Typed* x, uint32_t dtype) {
  weft_attr attr = attr_dtype("dtype", dtype);
  return !tape->good || x->dtype == dtype ? x : tape_with(tape, "convert", x, &attr, 1);
}

const Typed* tape_working(Tape* tape, const Typed* x) {
  return tape_as(tape, x, x->dtype == WEFT_F16 || x->dtype == WEFT_BF16 ? WEFT_F32 : x->dtype);
}

const Typed* tape_reduce(Tape* tape, const char* name, const Typed* x, const int64_t* dims, int count, bool keep) {
  weft_attr attrs[2] = {attr_ints("dims", dims, (size_t)count),
                        {.name = "keepdims", .name_length = WEFT_STRLEN, .type = WEFT_VALUE_BOOL, .i = keep}};
  return count == 0 ? x : tape_with(tape, name, x, attrs, 2);
}

const Typed* tape_reshape(Tape* tape, const Typed* x, const int64_t* dims, int count) {
  weft_attr attr = attr_ints("shape", dims, (size_t)count);
  return tape_with(tape, "reshape", x, &attr, 1);
}

void tape_write(Tape* tape, const Operand* target, const Typed* value) {
  if (!tape->good) {
    return;
  }
  bool* lent = &tape->lent[value - tape->made];
  Typed update = *value;
  bool fresh = !*lent;
  *lent = true;
  weft->tensor_retain(update.handle);
  tape->good = write_result(target, &update, fresh);
}

PyObject* tape_tensor(Tape* tape, const Typed* value) {
  if (tape->good && tape->lent[value - tape->made]) { /* a tensor shows the handle, and would change with this one */
    value = tape_reshape(tape, value, value->dims, value->ndim);
  }
  if (!tape->good) {
    return error_python();
  }
  tape->lent[value - tape->made] = true;
  weft->tensor_retain(value->handle);
  Cell* cell = cell_new(value->dtype, value->device, value->ndim, value->dims, value->handle);
  PyObject* out = cell == NULL ? NULL : cell_object(cell);
  if (out == NULL) {
    tape->good = false;
    return error_python();
  }
  return out;
}

PyObject* tape_tensors(Tape* tape, const Typed* const* values, int count) {
  PyObject* tuple = tape->good ? PyTuple_New(count) : error_python();
  for (int i = 0; tuple != NULL && i < count; ++i) {
    PyObject* item = values[i] == NULL ? Py_NewRef(Py_None) : tape_tensor(tape, values[i]);
    if (item == NULL) {
      Py_CLEAR(tuple);
    } else {
      PyTuple_SetItem(tuple, i, item);
    }
  }
  return tuple;
}

bool wanted_of(PyObject* list, bool* out) {
  for (int i = 0; i < 3; ++i) {
    PyObject* item = PySequence_GetItem(list, i);
    if (item == NULL) {
      return false;
    }
    out[i] = item == Py_True;
    Py_DECREF(item);
  }
  return true;
}

PyObject* tape_end(Tape* tape, PyObject* result) {
  for (int i = 0; i < tape->count; ++i) {
    typed_release(&tape->made[i]);
  }
  return result;
}
