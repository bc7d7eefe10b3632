/* Calls of Weft's operations, and the attributes they take. */
#include <math.h>
#include <string.h>

#include "weft_torch.h"

weft_attr attr_ints(const char* name, const int64_t* values, size_t count) {
  return (weft_attr){.name = name, .name_length = WEFT_STRLEN, .type = WEFT_VALUE_INTS, .data = values, .count = count};
}

weft_attr attr_int(const char* name, int64_t value) {
  return (weft_attr){.name = name, .name_length = WEFT_STRLEN, .type = WEFT_VALUE_INT, .i = value};
}

weft_attr attr_dtype(const char* name, uint32_t dtype) {
  return (weft_attr){.name = name, .name_length = WEFT_STRLEN, .type = WEFT_VALUE_DTYPE, .i = dtype};
}

weft_attr attr_enum(const char* name, const char* value) {
  return (weft_attr){
      .name = name, .name_length = WEFT_STRLEN, .type = WEFT_VALUE_ENUM, .data = value, .count = strlen(value)};
}

void typed_release(Typed* value) {
  if (value->handle != NULL) {
    weft->tensor_release(value->handle);
    value->handle = NULL;
  }
}

static void typed_from_info(Typed* out, weft_tensor* handle, const weft_tensor_info* info, int32_t device) {
  out->handle = handle;
  out->dtype = info->dtype;
  out->device = device;
  out->ndim = (int32_t)info->rank;
  memcpy(out->dims, info->dims, info->rank * sizeof(int64_t));
}

static PyObject* marks; /* changes under the GIL */

/* mark_with(function or None): what marks the frames before each operation. */
PyObject* mark_with(PyObject* self, PyObject* function) {
  PyObject* before = marks;
  (void)self;
  __atomic_store_n(&marks, function == Py_None ? NULL : Py_NewRef(function), __ATOMIC_RELAXED);
  Py_XDECREF(before);
  Py_RETURN_NONE;
}

/* torch lets the GIL go before it calls a kernel. A mark that fails leaves the one before it. */
void mark_frames(void) {
  if (__atomic_load_n(&marks, __ATOMIC_RELAXED) == NULL) {
    return;
  }
  PyGILState_STATE state = PyGILState_Ensure();
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  if (marks != NULL) {
    PyObject* done = PyObject_CallNoArgs(marks);
    if (done == NULL) {
      PyErr_Clear();
    }
    Py_XDECREF(done);
  }
  PyErr_Restore(type, value, trace);
  PyGILState_Release(state);
}

bool apply(const char* name, weft_tensor* const* inputs, size_t input_count, const weft_attr* attrs, size_t attr_count,
           int32_t device, Typed* out) {
  weft_tensor* handle = NULL;
  weft_tensor_info info;
  size_t count = 0;
  mark_frames();
  weft_error* error = weft->op_apply_on(context, input_count > 0 ? NULL : devices[device], name, WEFT_STRLEN, inputs,
                                        input_count, attrs, attr_count, &handle, &info, 1, &count);
  if (!error_take(error, NULL)) {
    return false;
  }
  typed_from_info(out, handle, &info, device);
  return true;
}

bool apply1(const char* name, const Typed* x, const weft_attr* attrs, size_t attr_count, Typed* out) {
  return apply(name, &x->handle, 1, attrs, attr_count, x->device, out);
}

bool apply2(const char* name, Typed* a, Typed* b, Typed* out) {
  weft_tensor* inputs[2] = {a->handle, b->handle};
  bool good = apply(name, inputs, 2, NULL, 0, a->device, out);
  typed_release(a);
  typed_release(b);
  return good;
}

bool step1(const char* name, Typed* value, const weft_attr* attrs, size_t count) {
  Typed out;
  bool good = apply1(name, value, attrs, count, &out);
  typed_release(value);
  if (good) {
    *value = out;
  }
  return good;
}

bool reshape_to(Typed* value, int ndim, const int64_t* dims) {
  if (value->ndim == ndim && memcmp(value->dims, dims, (size_t)ndim * sizeof *dims) == 0) {
    return true;
  }
  weft_attr attr = attr_ints("shape", dims, (size_t)ndim);
  return step1("reshape", value, &attr, 1);
}

bool convert(Typed* value, uint32_t dtype) {
  if (value->dtype == dtype) {
    return true;
  }
  weft_attr attr = attr_dtype("dtype", dtype);
  Typed out;
  bool good = apply1("convert", value, &attr, 1, &out);
  typed_release(value);
  if (good) {
    *value = out;
  }
  return good;
}

static bool is_float(uint32_t dtype) {
  uint32_t code = dtype & 0xff;
  return code == 2 || code == 4 || code >= 7;
}

/* A scalar argument is made on the default device; on another one it is moved there. */
static bool scalar_place(uint32_t dtype, int32_t device, weft_tensor* made, Typed* out) {
  if (device != 0) {
    weft_tensor* moved = NULL;
    bool good = error_take(weft->tensor_copy_to(made, devices[device], &moved), NULL);
    weft->tensor_release(made);
    if (!good) {
      return false;
    }
    made = moved;
  }
  out->handle = made;
  out->dtype = dtype;
  out->device = device;
  out->ndim = 0;
  return true;
}

/* Complex scalars are put together from two arguments, numbers of other types are converted ones. */
static bool scalar_convert(uint32_t from, uint32_t dtype, int32_t device, double value, Typed* out) {
  if (!scalar_f64(from, device, value, out)) {
    return false;
  }
  return convert(out, dtype);
}

bool scalar_f64(uint32_t dtype, int32_t device, double value, Typed* out) {
  if (!is_float(dtype)) {
    if (value == floor(value) && fabs(value) < 9007199254740992.0 && (dtype & 0xff) != 5) {
      return scalar_i64(dtype, device, (int64_t)value, out);
    }
    return scalar_convert((dtype & 0xff) == 5 && dtype == WEFT_C64 ? WEFT_F32 : WEFT_F64, dtype, device, value, out);
  }
  weft_tensor* made = NULL;
  if (!error_take(weft->tensor_from_f64(context, (weft_dtype)dtype, value, &made), NULL)) {
    return false;
  }
  return scalar_place(dtype, device, made, out);
}

bool scalar_i64(uint32_t dtype, int32_t device, int64_t value, Typed* out) {
  if (is_float(dtype)) {
    return scalar_f64(dtype, device, (double)value, out);
  }
  if ((dtype & 0xff) == 5) {
    return scalar_convert(dtype == WEFT_C64 ? WEFT_F32 : WEFT_F64, dtype, device, (double)value, out);
  }
  weft_tensor* made = NULL;
  int64_t held = value;
  uint32_t bits = (dtype >> 8) & 0xff;
  if (dtype == WEFT_BOOL) {
    held = value != 0;
  } else if (bits < 64) { /* wraps, as torch's casts do */
    uint64_t mask = ((uint64_t)1 << bits) - 1;
    held = (int64_t)((uint64_t)value & mask);
    if ((dtype & 0xff) == 0 && (held >> (bits - 1)) != 0) {
      held -= (int64_t)1 << bits;
    }
  }
  weft_error* error = dtype == WEFT_U64 && value < 0 ? weft->tensor_from_u64(context, WEFT_U64, (uint64_t)value, &made)
                                                     : weft->tensor_from_i64(context, (weft_dtype)dtype, held, &made);
  return error_take(error, NULL) && scalar_place(dtype, device, made, out);
}
