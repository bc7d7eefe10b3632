/* Numbers written beside tensors. For the number of `x + 2.5` torch makes a Tensor and asks it for `_wrapped_number`
 * before it hands a Python kernel the number. No tensor has such an attribute: torch builds an AttributeError with its
 * text each time, drops it and reads the tensor's memory. The descriptor here is that attribute; it reads the same memory.
 */
#include "weft_torch.h"

static PyObject* number_of(const DLTensor* tensor) {
  const char* at = (const char*)tensor->data + tensor->byte_offset;
  switch (tensor->dtype) {
    case WEFT_F64: return PyFloat_FromDouble(*(const double*)at);
    case WEFT_I64: return PyLong_FromLongLong(*(const int64_t*)at);
    case WEFT_BOOL: return PyBool_FromLong(*at != 0);
    case WEFT_C128: return PyComplex_FromDoubles(((const double*)at)[0], ((const double*)at)[1]);
    default: return NULL;
  }
}

static PyObject* wrapped_get(PyObject* self, PyObject* object, PyObject* type) {
  (void)type;
  if (object == NULL || object == Py_None) {
    return Py_NewRef(self);
  }
  DLTensor tensor;
  PyObject* number = NULL;
  if (torch.exchange->borrow(object, &tensor) != 0) {
    PyErr_Clear();
  } else if (tensor.device.type == DL_CPU && tensor.ndim == 0) {
    number = number_of(&tensor);
  }
  if (number == NULL && !PyErr_Occurred()) {
    PyErr_SetString(PyExc_AttributeError, "_wrapped_number");
  }
  return number;
}

/* wrapped_number(): the attribute `_wrapped_number` of torch's tensors. */
static PyObject* wrapped_number(PyObject* self, PyObject* args) {
  (void)self;
  (void)args;
  static PyType_Slot slots[] = {{Py_tp_descr_get, (void*)wrapped_get}, {0, NULL}};
  static PyType_Spec spec = {"_weft_torch.WrappedNumber", (int)sizeof(PyObject), 0, Py_TPFLAGS_DEFAULT, slots};
  PyObject* type = PyType_FromSpec(&spec);
  PyObject* out = type == NULL ? NULL : PyObject_CallNoArgs(type);
  Py_XDECREF(type);
  return out;
}

PyMethodDef wrapped_methods[] = {{"wrapped_number", wrapped_number, METH_NOARGS,
                                  "What reads numbers that torch wrapped, an attribute of its tensors."},
                                 {NULL, NULL, 0, NULL}};
