/* The module: finds torch and Weft in the process, and what of them kernels use. */
#include <dlfcn.h>
#include <string.h>

#include "weft_torch.h"

TorchApi torch;
const weft_api_v1* weft;
weft_context* context;
weft_device* devices[64];
size_t device_count;

typedef struct Symbol {
  const char* name;
  void* slot;
  bool optional;
} Symbol;

static const char* missing_symbol(void* libtorch, const Symbol* symbols, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    void* found = dlsym(libtorch, symbols[i].name);
    if (found == NULL && !symbols[i].optional) {
      return symbols[i].name;
    }
    memcpy(symbols[i].slot, &found, sizeof found);
  }
  return NULL;
}

/* Before torch 2.13 there is no function that ends an optional argument, which torch makes with C++'s new: then C++'s
 * delete is taken from the library that torch itself uses.
 */
static void (*operator_delete)(void* pointer);

static int32_t delete_by_operator(StableIValue* value) {
  operator_delete(value);
  return 0;
}

static bool find_delete(void* libtorch) {
  if (torch.delete_value == NULL) {
    void* found = dlsym(libtorch, "_ZdlPv");
    memcpy(&operator_delete, &found, sizeof found);
    torch.delete_value = delete_by_operator;
  }
  return operator_delete != NULL || torch.delete_value != delete_by_operator;
}

static bool find_torch(const char* path) {
  const Symbol symbols[] = {{"aoti_torch_library_init_impl", &torch.library_init_impl, false},
                            {"torch_library_impl", &torch.library_impl, false},
                            {"torch_get_mutable_data_ptr", &torch.get_data, false},
                            {"aoti_torch_get_dim", &torch.get_dim, false},
                            {"aoti_torch_get_sizes", &torch.get_sizes, false},
                            {"aoti_torch_get_strides", &torch.get_strides, false},
                            {"aoti_torch_get_dtype", &torch.get_dtype, false},
                            {"aoti_torch_get_storage_offset", &torch.get_offset, false},
                            {"aoti_torch_get_device_type", &torch.get_device_type, false},
                            {"aoti_torch_get_device_index", &torch.get_device_index, false},
                            {"aoti_torch__reinterpret_tensor", &torch.reinterpret, false},
                            {"aoti_torch_delete_tensor_object", &torch.delete_tensor, false},
                            {"torch_list_size", &torch.list_size, false},
                            {"torch_list_get_item", &torch.list_get, false},
                            {"torch_delete_list", &torch.list_delete, false},
                            {"torch_delete_stable_ivalue", &torch.delete_value, true},
                            {"torch_tensor_from_pyobject", &torch.from_object, true},
                            {"torch_tensor_to_pyobject", &torch.to_object, true},
                            {"aoti_torch_check", &torch.check, false},
                            {"torch_exception_get_what_without_backtrace", &torch.what, true}};
  void* libtorch = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  if (libtorch == NULL) {
    PyErr_Format(PyExc_ImportError, "%s is not loaded: import torch first", path);
    return false;
  }
  const char* missing = missing_symbol(libtorch, symbols, sizeof symbols / sizeof *symbols);
  if (missing == NULL && !find_delete(libtorch)) {
    missing = "torch_delete_stable_ivalue";
  }
  if (missing != NULL) {
    PyErr_Format(PyExc_ImportError, "%s has no function %s: torch 2.10 or newer is wanted", path, missing);
    return false;
  }
  return true;
}

static bool find_weft(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    PyErr_Format(PyExc_ImportError, "the library of Weft was looked for at %s: %s", path, dlerror());
    return false;
  }
  const weft_api_v1* (*get_api)(uint32_t) = NULL;
  void* found = dlsym(library, "weft_get_api");
  memcpy(&get_api, &found, sizeof found);
  weft = get_api == NULL ? NULL : get_api(WEFT_ABI_MAJOR);
  if (weft == NULL || weft->struct_size < offsetof(weft_api_v1, device_trim)) {
    const char* release = weft == NULL ? "of another ABI" : weft->release_version();
    PyErr_Format(PyExc_ImportError, "%s is Weft %s, and ABI 1.1 or newer of major version 1 is wanted", path, release);
    weft = NULL;
    return false;
  }
  return true;
}

/* load(weft path, torch path, version, exchange capsule, result_type, weft dtypes by torch's number, promotions) */
static PyObject* load(PyObject* self, PyObject* args) {
  (void)self;
  const char *weft_path = NULL, *torch_path = NULL;
  PyObject *capsule = NULL, *result_type = NULL, *dtypes = NULL, *promotions = NULL;
  unsigned long long version = 0;
  if (!PyArg_ParseTuple(args, "ssKOOOO", &weft_path, &torch_path, &version, &capsule, &result_type, &dtypes,
                        &promotions)) {
    return NULL;
  }
  torch.exchange = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
  if (torch.exchange == NULL || !find_torch(torch_path) || !find_weft(weft_path)) {
    return NULL;
  }
  if (torch.exchange->major != 1 || torch.exchange->borrow == NULL || torch.exchange->to_object == NULL) {
    return PyErr_Format(PyExc_ImportError, "torch's DLPack exchange is of version %u", torch.exchange->major);
  }
  torch.version = version;
  torch.result_type = Py_NewRef(result_type);
  for (int i = 0; i < 64; ++i) {
    PyObject* dtype = PySequence_GetItem(dtypes, i);
    PyObject* row = PySequence_GetItem(promotions, i);
    torch.weft_of[i] = dtype == NULL ? 0 : (uint32_t)PyLong_AsUnsignedLong(dtype);
    for (int j = 0; row != NULL && j < 64; ++j) {
      PyObject* item = PySequence_GetItem(row, j);
      torch.promote[i][j] = item == NULL ? 0 : (uint8_t)PyLong_AsLong(item);
      Py_XDECREF(item);
    }
    Py_XDECREF(dtype);
    Py_XDECREF(row);
  }
  if (PyErr_Occurred()) {
    return NULL;
  }
  Py_RETURN_NONE;
}

static bool find_devices(void) {
  size_t count = 0;
  if (!error_take(weft->device_count(context, &count), NULL)) {
    return false;
  }
  for (size_t i = 0; i < count && i < 64; ++i) {
    if (!error_take(weft->device_at(context, i, &devices[i]), NULL)) {
      return false;
    }
    device_count = i + 1;
  }
  return true;
}

/* start(names, values): makes the context; returns its address and that of each device. */
static PyObject* start(PyObject* self, PyObject* args) {
  (void)self;
  PyObject *names = NULL, *values = NULL;
  weft_setting settings[64];
  if (!PyArg_ParseTuple(args, "O!O!", &PyTuple_Type, &names, &PyTuple_Type, &values)) {
    return NULL;
  }
  Py_ssize_t count = PyTuple_Size(names);
  if (context != NULL || count > 64 || count != PyTuple_Size(values)) {
    PyErr_SetString(PyExc_RuntimeError, "the context was made already");
    return NULL;
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    const char* name = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(names, i), NULL);
    const char* value = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(values, i), NULL);
    if (name == NULL || value == NULL) {
      return NULL;
    }
    settings[i] = (weft_setting){name, WEFT_STRLEN, value, WEFT_STRLEN};
  }
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  options.settings = settings;
  options.setting_count = (uint64_t)count;
  weft_error* error = NULL;
  Py_BEGIN_ALLOW_THREADS error = weft->context_create(&options, &context);
  Py_END_ALLOW_THREADS if (!error_take(error, NULL) || !find_devices()) { return error_python(); }
  PyObject* out = PyList_New(0);
  for (size_t i = 0; out != NULL && i <= device_count; ++i) {
    PyObject* address = PyLong_FromVoidPtr(i == 0 ? (void*)context : (void*)devices[i - 1]);
    if (address == NULL || PyList_Append(out, address) != 0) {
      Py_CLEAR(out);
    }
    Py_XDECREF(address);
  }
  return out;
}

/* stop(): ends the context, which writes the compile cache; tensors that are left can only be released. */
static PyObject* stop(PyObject* self, PyObject* args) {
  (void)self;
  (void)args;
  if (context != NULL) {
    weft_context* ended = context;
    context = NULL;
    device_count = 0;
    Py_BEGIN_ALLOW_THREADS weft->context_release(ended);
    Py_END_ALLOW_THREADS
  }
  Py_RETURN_NONE;
}

/* used(): whether there ever was a tensor of the device. */
static PyObject* used(PyObject* self, PyObject* args) {
  (void)self;
  (void)args;
  return PyBool_FromLong(cells_used());
}

/* alive(): memory of tensors that torch holds, and values that Python holds. */
static PyObject* alive(PyObject* self, PyObject* args) {
  (void)self;
  (void)args;
  return Py_BuildValue("nn", (Py_ssize_t)cells_alive(), (Py_ssize_t)__atomic_load_n(&values_alive, __ATOMIC_RELAXED));
}

static PyMethodDef methods[] = {
    {"load", load, METH_VARARGS, "Finds torch and Weft."},
    {"start", start, METH_VARARGS, "Makes the context."},
    {"stop", stop, METH_NOARGS, "Ends the context."},
    {"mark_with", mark_with, METH_O, "What marks Python's frames before each operation, or None."},
    {"used", used, METH_NOARGS, "Whether the device was used."},
    {"alive", alive, METH_NOARGS, "How many tensors with memory of their own, and how many values, there are."},
    {"register", native_register, METH_VARARGS, "register(overload, kind, flags, operation): a kernel in C."},
    {"kernel", callable_new, METH_VARARGS,
     "kernel(kind, flags, operation): a kernel in C for torch to call as Python's."},
    {"counts", native_counts, METH_NOARGS, "Calls of kernels in C by overload."},
    {"native_ready", native_ready, METH_NOARGS, "Whether torch has what kernels in C need."},
    {NULL, NULL, 0, NULL}};

static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_weft_torch", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__weft_torch(void) {
  static bool guarded; /* this runs under the GIL */
  guarded = guarded || cells_guard_forks();
  if (!guarded) {
    return PyErr_NoMemory();
  }
  PyObject* module = PyModule_Create(&definition);
  PyMethodDef* const methods[] = {value_methods,      layer_methods, norm_methods,
                                  batch_norm_methods, loss_methods,  shape_methods};
  bool good = module != NULL && value_init(module);
  for (size_t i = 0; good && i < sizeof methods / sizeof *methods; ++i) {
    good = PyModule_AddFunctions(module, methods[i]) == 0;
  }
  if (!good) {
    Py_XDECREF(module);
    return NULL;
  }
  return module;
}
