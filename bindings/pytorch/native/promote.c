/* Operands of elementwise operations, and the dtype that torch's rules give them. */
#include <string.h>

#include "weft_torch.h"

/* torch's numbers of dtypes that the rules name. */
enum {
  KIND_U8 = 0,
  KIND_I64 = 4,
  KIND_F16 = 5,
  KIND_F64 = 7,
  KIND_C32 = 8,
  KIND_C64 = 9,
  KIND_C128 = 10,
  KIND_BOOL = 11
};

static int category(int kind) {
  switch (kind) {
    case KIND_BOOL: return 0;
    case 0:
    case 1:
    case 2:
    case 3:
    case 4:
    case 27:
    case 28:
    case 29: return 1;
    case 8:
    case 9:
    case 10: return 3;
    default: return 2;
  }
}

static bool operand_number(Operand* out) {
  const void* host = out->view.host;
  out->number = true;
  switch (out->view.dtype) {
    case WEFT_F64: out->d = *(const double*)host; return true;
    case WEFT_F32: out->d = *(const float*)host; return true;
    case WEFT_BOOL:
    case WEFT_U8:
      out->integral = true;
      out->i = *(const uint8_t*)host;
      return true;
    case WEFT_I8:
      out->integral = true;
      out->i = *(const int8_t*)host;
      return true;
    case WEFT_I16:
      out->integral = true;
      out->i = *(const int16_t*)host;
      return true;
    case WEFT_I32:
      out->integral = true;
      out->i = *(const int32_t*)host;
      return true;
    case WEFT_I64:
      out->integral = true;
      out->i = *(const int64_t*)host;
      return true;
    case WEFT_BF16: {
      uint32_t bits = (uint32_t)*(const uint16_t*)host << 16;
      float value;
      memcpy(&value, &bits, sizeof value);
      out->d = value;
      return true;
    }
    case WEFT_C64:
      out->complex = true;
      out->d = ((const float*)host)[0];
      out->imaginary = ((const float*)host)[1];
      return true;
    case WEFT_C128:
      out->complex = true;
      out->d = ((const double*)host)[0];
      out->imaginary = ((const double*)host)[1];
      return true;
    default: out->number = false; return true; /* read as a tensor of one element */
  }
}

/* Whether torch put the conjugation of a complex tensor off. Its C interface does not tell; Python's does. */
static bool is_conjugate(const Operand* operand) {
  bool out = false;
  void* object = NULL;
  PyGILState_STATE state = PyGILState_Ensure();
  if (operand->tensor == NULL) {
    object = Py_NewRef(operand->object);
  } else {
    torch.to_object(operand->tensor, NULL, &object);
  }
  PyObject* answer = object == NULL ? NULL : PyObject_CallMethod(object, "is_conj", NULL);
  if (answer == NULL) {
    PyErr_Clear();
  } else {
    out = PyObject_IsTrue(answer) == 1;
    Py_DECREF(answer);
  }
  Py_XDECREF((PyObject*)object);
  PyGILState_Release(state);
  return out;
}

static bool operand_finish(Operand* out) {
  if ((out->view.dtype & 0xff) == 5 && out->view.host == NULL) {
    out->conjugate = is_conjugate(out);
  }

  out->kind = torch_of(out->view.dtype);
  if (out->kind < 0) {
    error_set(WEFT_UNIMPLEMENTED, "the device xla has no such dtype");
    return false;
  }
  return out->view.host == NULL || operand_number(out);
}

bool operand_of_object(PyObject* object, Operand* out) {
  memset(out, 0, sizeof *out);
  out->object = object;
  if (PyFloat_CheckExact(object)) {
    out->number = out->wrapped = true;
    out->d = PyFloat_AsDouble(object);
    out->kind = KIND_F64;
    return true;
  }
  if (PyBool_Check(object) || PyLong_CheckExact(object)) {
    out->number = out->wrapped = out->integral = true;
    out->kind = PyBool_Check(object) ? KIND_BOOL : KIND_I64;
    out->i = PyLong_AsLongLong(object);
    if (out->i == -1 && PyErr_Occurred()) {
      error_set(ERROR_RAISED, "a number beyond 64 bits");
      return false;
    }
    return true;
  }
  if (PyComplex_CheckExact(object)) {
    out->number = out->wrapped = out->complex = true;
    out->kind = KIND_C128;
    out->d = PyComplex_RealAsDouble(object);
    out->imaginary = PyComplex_ImagAsDouble(object);
    return true;
  }
  return view_of_object(object, &out->view) && operand_finish(out);
}

bool operand_is_one(const Operand* number) {
  return number == NULL ||
         (number->integral ? number->i == 1 : number->d == 1.0 && (!number->complex || number->imaginary == 0.0));
}

bool operand_of_tensor(AtenTensorHandle tensor, Operand* out) {
  memset(out, 0, sizeof *out);
  out->tensor = tensor;
  return view_of_tensor(tensor, &out->view) && operand_finish(out);
}

/* Asks torch, where a CPU tensor without dimensions may be a number written beside a tensor, which the C interface does
 * not tell.
 */
static int result_from_torch(const Operand* a, const Operand* b) {
  int kind = -1;
  PyGILState_STATE state = PyGILState_Ensure();
  void *x = NULL, *y = NULL;
  if (a->object != NULL) {
    x = a->object;
    Py_INCREF((PyObject*)x);
  } else {
    torch.to_object(a->tensor, NULL, &x);
  }
  if (b->object != NULL) {
    y = b->object;
    Py_INCREF((PyObject*)y);
  } else {
    torch.to_object(b->tensor, NULL, &y);
  }
  if (x != NULL && y != NULL) {
    PyObject* result = PyObject_CallFunctionObjArgs(torch.result_type, x, y, NULL);
    if (result != NULL) {
      kind = (int)PyLong_AsLong(result);
      Py_DECREF(result);
    }
  }
  Py_XDECREF((PyObject*)x);
  Py_XDECREF((PyObject*)y);
  if (kind < 0) {
    PyErr_Clear();
    error_set(WEFT_INVALID_ARGUMENT, "torch gives these operands no common dtype");
  }
  PyGILState_Release(state);
  return kind;
}

int result_kind(Operand* const* operands, size_t count) {
  const Operand* a = operands[0];
  if (count == 1) {
    return a->kind;
  }
  const Operand* b = operands[1];
  if (a->kind == b->kind && !a->number && !b->number && (a->view.ndim > 0) == (b->view.ndim > 0)) {
    return a->kind;
  }
  if (a->number && !b->number) {
    const Operand* other = a;
    a = b;
    b = other;
  }
  if (b->number && !a->number) {
    int rank = category(a->kind), other = category(b->kind);
    if (rank > other || (rank == other && (a->view.ndim > 0 || b->wrapped))) {
      return a->kind;
    }
    return result_from_torch(operands[0], operands[1]);
  }
  if (a->number) {
    return result_from_torch(operands[0], operands[1]);
  }
  bool a_dims = a->view.ndim > 0, b_dims = b->view.ndim > 0;
  if (a_dims == b_dims) {
    return torch.promote[a->kind][b->kind];
  }
  const Operand* high = a_dims ? a : b;
  const Operand* low = a_dims ? b : a;
  int rank = category(high->kind), other = category(low->kind);
  return rank >= other ? high->kind : torch.promote[high->kind][low->kind];
}

/* Complex scalars are put together from two arguments. */
static bool read_complex(const Operand* operand, uint32_t dtype, int32_t device, Typed* out) {
  Typed real, imaginary;
  if ((dtype & 0xff) != 5) {
    error_set(WEFT_INVALID_ARGUMENT, "For non-complex input tensors, a number must not be complex.");
    return false;
  }
  uint32_t part = dtype == WEFT_C64 ? WEFT_F32 : WEFT_F64;
  if (!scalar_f64(part, device, operand->d, &real)) {
    return false;
  }
  if (!scalar_f64(part, device, operand->imaginary, &imaginary)) {
    typed_release(&real);
    return false;
  }
  return apply2("complex", &real, &imaginary, out);
}

static _Thread_local Numbers* shared;

void numbers_share(Numbers* numbers) {
  numbers->count = 0;
  shared = numbers;
}

void numbers_end(Numbers* numbers) {
  shared = NULL;
  while (numbers->count > 0) {
    typed_release(&numbers->kept[--numbers->count]);
  }
}

static bool read_number(const Operand* operand, uint32_t dtype, int32_t device, Typed* out) {
  Numbers* numbers = shared;
  int64_t bits = operand->i;
  if (!operand->integral) {
    memcpy(&bits, &operand->d, sizeof bits);
  }
  for (int i = 0; numbers != NULL && i < numbers->count; ++i) {
    const Typed* kept = &numbers->kept[i];
    if (numbers->bits[i] == bits && numbers->integral[i] == operand->integral && kept->dtype == dtype &&
        kept->device == device) {
      *out = *kept;
      weft->tensor_retain(out->handle);
      return true;
    }
  }
  bool good =
      operand->integral ? scalar_i64(dtype, device, operand->i, out) : scalar_f64(dtype, device, operand->d, out);
  if (good && numbers != NULL && numbers->count < (int)(sizeof numbers->kept / sizeof *numbers->kept)) {
    weft->tensor_retain(out->handle);
    numbers->kept[numbers->count] = *out;
    numbers->bits[numbers->count] = bits;
    numbers->integral[numbers->count++] = operand->integral;
  }
  return good;
}

bool operand_read(const Operand* operand, uint32_t dtype, int32_t device, Typed* out) {
  if (operand->complex) {
    return read_complex(operand, dtype, device, out);
  }
  if (operand->number) {
    return read_number(operand, dtype, device, out);
  }
  if (operand->view.host != NULL) {
    out->dtype = operand->view.dtype;
    out->device = device;
    out->ndim = 0;
    if (!error_take(weft->tensor_from_host(context, devices[device], (weft_dtype)out->dtype, NULL, 0,
                                           operand->view.host, dtype_size(out->dtype), &out->handle),
                    NULL)) {
      return false;
    }
  } else if (!view_read(&operand->view, out)) {
    return false;
  }
  if (operand->conjugate) {
    Typed plain;
    bool good = apply1("conj", out, NULL, 0, &plain);
    typed_release(out);
    if (!good) {
      return false;
    }
    *out = plain;
  }
  return out->dtype == dtype || convert(out, dtype);
}

int32_t common_device(Operand* const* operands, size_t count) {
  int32_t device = -1;
  for (size_t i = 0; i < count; ++i) {
    if (operands[i]->number || operands[i]->view.host != NULL) {
      continue;
    }
    if (device >= 0 && operands[i]->view.device != device) {
      error_devices(device, operands[i]->view.device);
      return -1;
    }
    device = operands[i]->view.device;
  }
  if (device < 0) {
    error_set(WEFT_INVALID_ARGUMENT, "no operand is on the device xla");
  }
  return device;
}
