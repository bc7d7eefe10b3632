/* Errors: set once for a thread, raised where Python or torch is reached. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "weft_torch.h"

static _Thread_local int error_code;
static _Thread_local char error_text[4096];

void error_set(int code, const char* format, ...) {
  va_list list;
  va_start(list, format);
  vsnprintf(error_text, sizeof error_text, format, list);
  va_end(list);
  error_code = code;
}

bool error_take(weft_error* error, const char* operation) {
  if (error == NULL) {
    return true;
  }
  error_code = (int)weft->error_code(error);
  const char* text = weft->error_message(error, NULL);
  snprintf(error_text, sizeof error_text, "%s%s%s", operation == NULL ? "" : operation, operation == NULL ? "" : ": ",
           text);
  weft->error_release(error);
  return false;
}

void error_devices(int32_t one, int32_t other) {
  error_set(WEFT_INVALID_ARGUMENT,
            "Expected all tensors to be on the same device, but found at least two devices, xla:%d and xla:%d!",
            (int)one, (int)other);
}

PyObject* error_python(void) {
  PyObject* type = PyExc_RuntimeError;
  switch (error_code) {
    case ERROR_RAISED: return NULL;
    case ERROR_TYPE: type = PyExc_TypeError; break;
    case ERROR_VALUE: type = PyExc_ValueError; break;
    case WEFT_UNIMPLEMENTED: type = PyExc_NotImplementedError; break;
    case WEFT_OUT_OF_RANGE: type = PyExc_IndexError; break;
    default: break;
  }
  PyErr_SetString(type, error_text);
  return NULL;
}

/* aoti_torch_check throws c10::Error, which becomes RuntimeError. Nothing of ours may need an end after this call. */
void error_torch(void) { torch.check(false, "kernel", "weft", 0, error_text); }
