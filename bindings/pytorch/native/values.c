/* Values: Weft's tensors as Python objects, for lowerings that are written in Python. A value is immutable; a tensor of
 * torch's becomes one with read(), and one becomes a tensor with wrap().
 */
#include <string.h>

#include "weft_torch.h"

enum { MAX_INPUTS = 64, MAX_ATTRS = 24, MAX_RESULTS = 8, MAX_NUMBERS = 256 };

PyTypeObject* value_type;
int64_t values_alive;

static void value_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  typed_release(&((Value*)self)->typed);
  __atomic_fetch_sub(&values_alive, 1, __ATOMIC_RELAXED);
  freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
  release(self);
  Py_DECREF(type);
}

PyObject* value_new(Typed* typed, bool fresh) {
  allocfunc allocate = (allocfunc)PyType_GetSlot(value_type, Py_tp_alloc);
  Value* value = (Value*)allocate(value_type, 0);
  if (value == NULL) {
    typed_release(typed);
    return NULL;
  }
  __atomic_fetch_add(&values_alive, 1, __ATOMIC_RELAXED);
  value->typed = *typed;
  value->fresh = fresh;
  return (PyObject*)value;
}

/* A value that takes a handle over, and asks it for its dtype and shape. */
static PyObject* value_of_handle(weft_tensor* handle, int32_t device) {
  Typed typed = {.handle = handle, .device = device};
  weft_dtype dtype = WEFT_DTYPE_INVALID;
  size_t rank = 0;
  if (!error_take(weft->tensor_dtype(handle, &dtype), NULL) ||
      !error_take(weft->tensor_dims(handle, typed.dims, MAX_RANK, &rank), NULL)) {
    typed_release(&typed);
    return error_python();
  }
  typed.dtype = dtype;
  typed.ndim = (int32_t)rank;
  return value_new(&typed, true);
}

static PyObject* dims_tuple(const Typed* typed) {
  PyObject* out = PyTuple_New(typed->ndim);
  for (int i = 0; out != NULL && i < typed->ndim; ++i) {
    PyTuple_SetItem(out, i, PyLong_FromLongLong(typed->dims[i]));
  }
  return out;
}

static PyObject* value_shape(PyObject* self, void* closure) {
  (void)closure;
  return dims_tuple(&((Value*)self)->typed);
}

static PyObject* value_dtype(PyObject* self, void* closure) {
  (void)closure;
  return PyLong_FromUnsignedLong(((Value*)self)->typed.dtype);
}

static PyObject* value_device(PyObject* self, void* closure) {
  (void)closure;
  return PyLong_FromLong(((Value*)self)->typed.device);
}

static PyObject* value_handle(PyObject* self, void* closure) {
  (void)closure;
  return PyLong_FromVoidPtr(((Value*)self)->typed.handle);
}

static PyObject* value_rank(PyObject* self, void* closure) {
  (void)closure;
  return PyLong_FromLong(((Value*)self)->typed.ndim);
}

static PyGetSetDef value_fields[] = {
    {"shape", value_shape, NULL, NULL, NULL},   {"dtype", value_dtype, NULL, NULL, NULL},
    {"device", value_device, NULL, NULL, NULL}, {"handle", value_handle, NULL, NULL, NULL},
    {"ndim", value_rank, NULL, NULL, NULL},     {NULL, NULL, NULL, NULL, NULL}};

bool value_init(PyObject* module) {
  static PyType_Slot slots[] = {{Py_tp_dealloc, (void*)value_dealloc}, {Py_tp_getset, (void*)value_fields}, {0, NULL}};
  static PyType_Spec spec = {"_weft_torch.Value", (int)sizeof(Value), 0, Py_TPFLAGS_DEFAULT | (1UL << 7), slots};
  value_type = (PyTypeObject*)PyType_FromSpec(&spec);
  return value_type != NULL && PyModule_AddObjectRef(module, "Value", (PyObject*)value_type) == 0;
}

static Value* value_check(PyObject* object) {
  if (Py_TYPE(object) == value_type) {
    return (Value*)object;
  }
  PyErr_Format(PyExc_TypeError, "a value of Weft's is wanted, not %R", (PyObject*)Py_TYPE(object));
  return NULL;
}

static PyObject* read_value(PyObject* self, PyObject* object) {
  (void)self;
  Operand operand;
  Typed typed;
  if (Py_TYPE(object) == value_type) {
    return Py_NewRef(object);
  }
  if (!operand_of_object(object, &operand) || operand.object == NULL ||
      !operand_read(&operand, operand.view.dtype, operand.view.host != NULL ? 0 : operand.view.device, &typed)) {
    return error_python();
  }
  /* What operations made of the cell's tensor is the value's alone. */
  return value_new(&typed, operand.view.cell == NULL || operand.view.cell->handle != typed.handle);
}

static PyObject* wrap_value(PyObject* self, PyObject* object) {
  (void)self;
  Value* value = value_check(object);
  if (value == NULL) {
    return NULL;
  }
  Typed typed = value->typed;
  if (value->fresh) {
    value->fresh = false;
    weft->tensor_retain(typed.handle);
  } else { /* another tensor may show this handle: assigning to one must not change the other */
    weft_attr attr = attr_ints("shape", typed.dims, (size_t)typed.ndim);
    if (!apply1("reshape", &value->typed, &attr, 1, &typed)) {
      return error_python();
    }
  }
  Cell* cell = cell_new(typed.dtype, typed.device, typed.ndim, typed.dims, typed.handle);
  PyObject* out = cell == NULL ? NULL : cell_object(cell);
  return out == NULL ? error_python() : out;
}

static PyObject* write_value(PyObject* self, PyObject* args) {
  (void)self;
  PyObject *object = NULL, *given = NULL;
  Operand target;
  if (!PyArg_ParseTuple(args, "OO", &object, &given)) {
    return NULL;
  }
  Value* value = value_check(given);
  if (value == NULL) {
    return NULL;
  }
  if (!operand_of_object(object, &target)) {
    return error_python();
  }
  if (target.view.host != NULL) {
    PyErr_SetString(PyExc_RuntimeError, "the result of an operation on the device xla cannot go into a CPU tensor");
    return NULL;
  }
  Typed update = value->typed;
  weft->tensor_retain(update.handle);
  bool fresh = value->fresh;
  value->fresh = false;
  return write_result(&target, &update, fresh) ? Py_NewRef(object) : error_python();
}

/* Attributes from keywords. Numbers of lists go into `room`. */
static bool attr_from(PyObject* name, PyObject* value, weft_attr* attr, int64_t* room, size_t* used) {
  memset(attr, 0, sizeof *attr);
  attr->name = PyUnicode_AsUTF8AndSize(name, NULL);
  attr->name_length = WEFT_STRLEN;
  if (PyBool_Check(value)) {
    attr->type = WEFT_VALUE_BOOL;
    attr->i = value == Py_True;
  } else if (PyLong_Check(value)) {
    attr->type = strcmp(attr->name, "dtype") == 0 ? WEFT_VALUE_DTYPE : WEFT_VALUE_INT;
    attr->i = PyLong_AsLongLong(value);
  } else if (PyFloat_Check(value)) {
    attr->type = WEFT_VALUE_DOUBLE;
    attr->d = PyFloat_AsDouble(value);
  } else if (PyUnicode_Check(value)) {
    Py_ssize_t size = 0;
    attr->type = WEFT_VALUE_ENUM;
    attr->data = PyUnicode_AsUTF8AndSize(value, &size);
    attr->count = (size_t)size;
  } else if (PyTuple_Check(value) || PyList_Check(value)) {
    Py_ssize_t size = PySequence_Size(value);
    attr->type = WEFT_VALUE_INTS;
    attr->data = room + *used;
    attr->count = (size_t)size;
    if (*used + (size_t)size > MAX_NUMBERS) {
      PyErr_SetString(PyExc_ValueError, "more numbers in attributes than there is room for");
      return false;
    }
    for (Py_ssize_t i = 0; i < size; ++i) {
      PyObject* item = PySequence_GetItem(value, i);
      room[(*used)++] = item == NULL ? -1 : PyLong_AsLongLong(item);
      Py_XDECREF(item);
    }
  } else {
    PyErr_Format(PyExc_TypeError, "attribute %U: %R", name, value);
  }
  return !PyErr_Occurred();
}

/* The handles of values, None where one is left out, and the device that all are on; *device is -1 before the first. */
static bool inputs_from(PyObject* const* objects, Py_ssize_t count, weft_tensor** out, int32_t* device) {
  if (count > MAX_INPUTS) {
    PyErr_SetString(PyExc_ValueError, "more operands than there is room for");
    return false;
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (objects[i] == Py_None) {
      out[i] = NULL;
      continue;
    }
    Value* value = value_check(objects[i]);
    if (value == NULL) {
      return false;
    }
    out[i] = value->typed.handle;
    if (*device >= 0 && *device != value->typed.device) {
      error_devices(*device, value->typed.device);
      error_python();
      return false;
    }
    *device = value->typed.device;
  }
  return true;
}

static PyObject* results(weft_tensor** handles, const weft_tensor_info* infos, size_t count, int32_t device) {
  PyObject* tuple = count == 1 ? NULL : PyTuple_New((Py_ssize_t)count);
  for (size_t i = 0; i < count; ++i) {
    Typed typed = {.handle = handles[i], .dtype = infos[i].dtype, .device = device, .ndim = (int32_t)infos[i].rank};
    memcpy(typed.dims, infos[i].dims, infos[i].rank * sizeof(int64_t));
    PyObject* value = value_new(&typed, true);
    if (count == 1) {
      return value;
    }
    if (tuple == NULL || value == NULL) {
      Py_XDECREF(value);
      continue;
    }
    PyTuple_SetItem(tuple, (Py_ssize_t)i, value);
  }
  return tuple;
}

/* op(name, *values, device=0, **attributes): a value, or a tuple of several. */
static PyObject* op(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* names) {
  (void)self;
  weft_tensor *inputs[MAX_INPUTS], *outputs[MAX_RESULTS];
  weft_tensor_info infos[MAX_RESULTS];
  weft_attr attrs[MAX_ATTRS];
  int64_t room[MAX_NUMBERS];
  size_t used = 0, attr_count = 0, count = 0;
  int32_t device = -1;
  const char* name = nargs > 0 ? PyUnicode_AsUTF8AndSize(args[0], NULL) : NULL;
  if (name == NULL || !inputs_from(args + 1, nargs - 1, inputs, &device)) {
    return NULL;
  }
  device = device < 0 ? 0 : device;
  Py_ssize_t keywords = names == NULL ? 0 : PyTuple_Size(names);
  for (Py_ssize_t i = 0; i < keywords; ++i) {
    PyObject *key = PyTuple_GetItem(names, i), *value = args[nargs + i];
    if (value == Py_None) {
      continue;
    }
    if (strcmp(PyUnicode_AsUTF8AndSize(key, NULL), "device") == 0) {
      device = (int32_t)PyLong_AsLong(value);
      continue;
    }
    if (attr_count == MAX_ATTRS || !attr_from(key, value, &attrs[attr_count++], room, &used)) {
      return NULL;
    }
  }
  if (device < 0 || (size_t)device >= device_count) {
    return PyErr_Format(PyExc_RuntimeError, "xla:%d: there are %zu devices", device, device_count);
  }
  mark_frames();
  weft_error* error = weft->op_apply_on(context, nargs > 1 ? NULL : devices[device], name, WEFT_STRLEN, inputs,
                                        (size_t)(nargs - 1), attrs, attr_count, outputs, infos, MAX_RESULTS, &count);
  return error_take(error, name) ? results(outputs, infos, count, device) : error_python();
}

/* vjp(name, inputs, cotangents, wanted, results, **attributes): the gradients of the inputs, None where none flows. */
static PyObject* vjp(PyObject* self, PyObject* args, PyObject* keywords) {
  (void)self;
  const char* name = NULL;
  PyObject *given[4], *key = NULL, *value = NULL;
  if (!PyArg_ParseTuple(args, "sO!O!O!O!", &name, &PyTuple_Type, &given[0], &PyTuple_Type, &given[1], &PyTuple_Type,
                        &given[2], &PyTuple_Type, &given[3])) {
    return NULL;
  }
  weft_tensor *handles[3][MAX_INPUTS], *gradients[MAX_INPUTS];
  int32_t wanted[MAX_INPUTS], device = -1;
  for (int part = 0; part < 3; ++part) {
    PyObject* objects[MAX_INPUTS];
    PyObject* tuple = given[part == 2 ? 3 : part];
    Py_ssize_t size = PyTuple_Size(tuple);
    for (Py_ssize_t i = 0; i < size && i < MAX_INPUTS; ++i) {
      objects[i] = PyTuple_GetItem(tuple, i);
    }
    if (!inputs_from(objects, size, handles[part], &device)) {
      return NULL;
    }
  }
  Py_ssize_t inputs = PyTuple_Size(given[0]), outputs = PyTuple_Size(given[1]);
  for (Py_ssize_t i = 0; i < inputs; ++i) {
    wanted[i] = i < PyTuple_Size(given[2]) && PyTuple_GetItem(given[2], i) == Py_True;
    gradients[i] = NULL;
  }
  weft_attr attrs[MAX_ATTRS];
  int64_t room[MAX_NUMBERS];
  size_t used = 0, attr_count = 0;
  Py_ssize_t at = 0;
  while (keywords != NULL && PyDict_Next(keywords, &at, &key, &value)) {
    if (value != Py_None && (attr_count == MAX_ATTRS || !attr_from(key, value, &attrs[attr_count++], room, &used))) {
      return NULL;
    }
  }
  weft_error* error = weft->op_vjp(context, name, WEFT_STRLEN, handles[0], (size_t)inputs, attrs, attr_count,
                                   PyTuple_Size(given[3]) == outputs ? handles[2] : NULL, handles[1], (size_t)outputs,
                                   wanted, gradients);
  if (!error_take(error, name)) {
    return error_python();
  }
  PyObject* out = PyTuple_New(inputs);
  for (Py_ssize_t i = 0; out != NULL && i < inputs; ++i) {
    PyObject* item = Py_NewRef(Py_None);
    if (gradients[i] != NULL) {
      Py_DECREF(item);
      item = value_of_handle(gradients[i], device);
      if (item == NULL) {
        return NULL;
      }
    }
    PyTuple_SetItem(out, i, item);
  }
  return out;
}

/* scalar(dtype, number, device): a value without dimensions, an argument of the program. */
static PyObject* scalar(PyObject* self, PyObject* args) {
  (void)self;
  unsigned int dtype = 0;
  int device = 0;
  PyObject* number = NULL;
  Typed typed;
  if (!PyArg_ParseTuple(args, "IOi", &dtype, &number, &device)) {
    return NULL;
  }
  if (device < 0 || (size_t)device >= device_count) {
    return PyErr_Format(PyExc_RuntimeError, "xla:%d: there are %zu devices", device, device_count);
  }
  bool good = false;
  if (PyFloat_Check(number)) {
    good = scalar_f64(dtype, device, PyFloat_AsDouble(number), &typed);
  } else if (PyLong_Check(number)) {
    int overflow = 0;
    int64_t integer = PyLong_AsLongLongAndOverflow(number, &overflow);
    if (overflow > 0 && dtype == WEFT_U64) {
      uint64_t wide = PyLong_AsUnsignedLongLong(number);
      good = !PyErr_Occurred() && error_take(weft->tensor_from_u64(context, WEFT_U64, wide, &typed.handle), NULL);
      typed.dtype = dtype;
      typed.device = device;
      typed.ndim = 0;
    } else if (overflow != 0) {
      good = scalar_f64(dtype, device, PyLong_AsDouble(number), &typed);
    } else {
      good = scalar_i64(dtype, device, integer, &typed);
    }
  } else {
    return PyErr_Format(PyExc_TypeError, "a number is wanted, not %R", number);
  }
  if (PyErr_Occurred()) {
    return NULL;
  }
  return good ? value_new(&typed, true) : error_python();
}

static bool dims_from(PyObject* object, int64_t* out, int* out_count) {
  Py_ssize_t size = PySequence_Size(object);
  if (size < 0 || size > MAX_RANK) {
    PyErr_Format(PyExc_NotImplementedError, "a tensor of %zd dimensions: the device xla has at most %d", size,
                 MAX_RANK);
    return false;
  }
  for (Py_ssize_t i = 0; i < size; ++i) {
    PyObject* item = PySequence_GetItem(object, i);
    out[i] = item == NULL ? -1 : PyLong_AsLongLong(item);
    Py_XDECREF(item);
    if (out[i] < 0 && !PyErr_Occurred()) {
      PyErr_Format(PyExc_RuntimeError, "Trying to create tensor with negative dimension %lld", (long long)out[i]);
    }
    if (PyErr_Occurred()) {
      return false;
    }
  }
  *out_count = (int)size;
  return true;
}

/* empty(dtype, dims, device): a tensor to which nothing was written. */
static PyObject* empty(PyObject* self, PyObject* args) {
  (void)self;
  unsigned int dtype = 0;
  int device = 0, ndim = 0;
  PyObject* given = NULL;
  int64_t dims[MAX_RANK];
  if (!PyArg_ParseTuple(args, "IOi", &dtype, &given, &device) || !dims_from(given, dims, &ndim)) {
    return NULL;
  }
  if (device < 0 || (size_t)device >= device_count) {
    return PyErr_Format(PyExc_RuntimeError, "xla:%d: there are %zu devices", device, device_count);
  }
  Cell* cell = cell_new(dtype, device, ndim, dims, NULL);
  PyObject* out = cell == NULL ? NULL : cell_object(cell);
  return out == NULL ? error_python() : out;
}

/* upload(dtype, dims, address, bytes, device): a value of dense host memory, which is copied. */
static PyObject* upload(PyObject* self, PyObject* args) {
  (void)self;
  unsigned int dtype = 0;
  int device = 0, ndim = 0;
  unsigned long long address = 0, bytes = 0;
  PyObject* given = NULL;
  Typed typed = {0};
  if (!PyArg_ParseTuple(args, "IOKKi", &dtype, &given, &address, &bytes, &device) ||
      !dims_from(given, typed.dims, &ndim)) {
    return NULL;
  }
  typed.dtype = dtype;
  typed.device = device;
  typed.ndim = ndim;
  weft_error* error = NULL;
  Py_BEGIN_ALLOW_THREADS error =
      weft->tensor_from_host(context, devices[device], (weft_dtype)dtype, typed.dims, (size_t)ndim,
                             (const void*)(uintptr_t)address, (size_t)bytes, &typed.handle);
  Py_END_ALLOW_THREADS return error_take(error, NULL) ? value_new(&typed, true) : error_python();
}

/* copy_to(value, device): the value on another device. */
static PyObject* copy_to(PyObject* self, PyObject* args) {
  (void)self;
  PyObject* object = NULL;
  int device = 0;
  if (!PyArg_ParseTuple(args, "Oi", &object, &device)) {
    return NULL;
  }
  Value* value = value_check(object);
  if (value == NULL) {
    return NULL;
  }
  if (device < 0 || (size_t)device >= device_count) {
    return PyErr_Format(PyExc_RuntimeError, "xla:%d: there are %zu devices", device, device_count);
  }
  Typed typed = value->typed;
  weft_error* error = NULL;
  Py_BEGIN_ALLOW_THREADS error = weft->tensor_copy_to(value->typed.handle, devices[device], &typed.handle);
  Py_END_ALLOW_THREADS typed.device = device;
  return error_take(error, NULL) ? value_new(&typed, true) : error_python();
}

/* adopt(address, device): the value of a tensor of Weft's that somebody else made on a device, and that it takes over. */
static PyObject* adopt(PyObject* self, PyObject* args) {
  (void)self;
  unsigned long long address = 0;
  int device = 0;
  if (!PyArg_ParseTuple(args, "Ki", &address, &device)) {
    return NULL;
  }
  return value_of_handle((weft_tensor*)(uintptr_t)address, device);
}

/* download(value, address, bytes): evaluates, waits, copies into dense host memory. */
static PyObject* download(PyObject* self, PyObject* args) {
  (void)self;
  PyObject* object = NULL;
  unsigned long long address = 0, bytes = 0;
  if (!PyArg_ParseTuple(args, "OKK", &object, &address, &bytes)) {
    return NULL;
  }
  Value* value = value_check(object);
  weft_error* error = NULL;
  if (value == NULL) {
    return NULL;
  }
  Py_BEGIN_ALLOW_THREADS error = weft->tensor_to_host(value->typed.handle, (void*)(uintptr_t)address, (size_t)bytes);
  Py_END_ALLOW_THREADS if (!error_take(error, NULL)) { return error_python(); }
  Py_RETURN_NONE;
}

static PyObject* wait_for(weft_error* error, weft_event* event, int wait) {
  if (error == NULL && wait && event != NULL) {
    Py_BEGIN_ALLOW_THREADS error = weft->event_wait(event, WEFT_WAIT_FOREVER);
    Py_END_ALLOW_THREADS
  }
  if (event != NULL) {
    weft->event_release(event);
  }
  if (!error_take(error, NULL)) {
    return error_python();
  }
  Py_RETURN_NONE;
}

/* sync(device, wait): the barrier. */
static PyObject* sync_device(PyObject* self, PyObject* args) {
  (void)self;
  int device = 0, wait = 0;
  weft_event* event = NULL;
  weft_error* error = NULL;
  if (!PyArg_ParseTuple(args, "ip", &device, &wait)) {
    return NULL;
  }
  Py_BEGIN_ALLOW_THREADS error = weft->sync(context, devices[device], &event);
  Py_END_ALLOW_THREADS return wait_for(error, event, wait);
}

/* evaluate(values, wait): these values only. */
static PyObject* evaluate(PyObject* self, PyObject* args) {
  (void)self;
  PyObject* list = NULL;
  int wait = 0;
  if (!PyArg_ParseTuple(args, "O!p", &PyTuple_Type, &list, &wait)) {
    return NULL;
  }
  Py_ssize_t count = PyTuple_Size(list);
  weft_tensor** handles = PyMem_Malloc((size_t)(count + 1) * sizeof *handles);
  weft_event* event = NULL;
  weft_error* error = NULL;
  if (handles == NULL) {
    return PyErr_NoMemory();
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    Value* value = value_check(PyTuple_GetItem(list, i));
    if (value == NULL) {
      PyMem_Free(handles);
      return NULL;
    }
    handles[i] = value->typed.handle;
  }
  Py_BEGIN_ALLOW_THREADS error = weft->eval(context, handles, (size_t)count, &event);
  Py_END_ALLOW_THREADS PyMem_Free(handles);
  return wait_for(error, event, wait);
}

/* identity(tensor): the number of its cell; 0 for a tensor without elements, None for another device's. */
static PyObject* identity(PyObject* self, PyObject* object) {
  (void)self;
  View view;
  if (!view_of_object(object, &view)) {
    if (PyErr_Occurred()) {
      return NULL;
    }
    Py_RETURN_NONE;
  }
  if (view.host != NULL) {
    Py_RETURN_NONE;
  }
  return PyLong_FromLong(view.cell == NULL ? 0 : (long)view.cell->number);
}

PyMethodDef value_methods[] = {
    {"read", read_value, METH_O, "The value of a tensor."},
    {"wrap", wrap_value, METH_O, "A new tensor of a value."},
    {"write", write_value, METH_VARARGS, "write(tensor, value): in place."},
    {"op", (PyCFunction)(void (*)(void))op, METH_FASTCALL | METH_KEYWORDS, "An operation of Weft's."},
    {"vjp", (PyCFunction)(void (*)(void))vjp, METH_VARARGS | METH_KEYWORDS, "Gradients of an operation."},
    {"scalar", scalar, METH_VARARGS, "A number as a value."},
    {"empty", empty, METH_VARARGS, "A tensor to which nothing was written."},
    {"upload", upload, METH_VARARGS, "A value of host memory."},
    {"copy_to", copy_to, METH_VARARGS, "A value on another device."},
    {"adopt", adopt, METH_VARARGS, "A value of a tensor that somebody else made."},
    {"download", download, METH_VARARGS, "A value into host memory."},
    {"sync", sync_device, METH_VARARGS, "The barrier of a device."},
    {"evaluate", evaluate, METH_VARARGS, "Computes values."},
    {"identity", identity, METH_O, "The number of a tensor's cell."},
    {NULL, NULL, 0, NULL}};
