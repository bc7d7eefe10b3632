/* Where a thread records, and which line of the program is said to be the place: what _call.Now and _call.mark do. */
#include "accelerator.h"

enum { kFiles = 256 };

PyObject *start, *package, *numbers, *changed;
_Thread_local Here* here_;
static PyObject *own, *name_back, *name_file, *name_waits, *name_last;
static void** own_cell;
static int own_waits;
static PyObject* whole_stacks; /* _call._mark_stack where a context has the option positions=stack, else NULL */

/* Puts an owned reference, or NULL, in the place of another. */
void put(PyObject** place, PyObject* value) {
  PyObject* before = *place;
  *place = value;
  Py_XDECREF(before);
}

/* --- this thread's surroundings: context, step and body, as _call.Now has them */

static void here_free(PyObject* capsule) {
  Here* h = PyCapsule_GetPointer(capsule, NULL);
  int i;
  if (h == NULL) return;
  if (here_ == h) here_ = NULL;
  for (i = 0; i < kPlaces; ++i) Py_CLEAR(h->object[i]);
  PyMem_Free(h);
}

/* The surroundings live as long as Python's state of the thread; NULL with an exception where there is no memory. */
Here* here_made(void) {
  PyObject *states = PyThreadState_GetDict(), *capsule;
  Here* h;
  int failed;
  if (states == NULL) return (Here*)PyErr_NoMemory();
  h = PyMem_Calloc(1, sizeof *h);
  if (h == NULL) return (Here*)PyErr_NoMemory();
  capsule = PyCapsule_New(h, NULL, here_free);
  if (capsule == NULL) {
    PyMem_Free(h);
    return NULL;
  }
  failed = PyDict_SetItemString(states, "libweft", capsule);
  Py_DECREF(capsule);
  if (failed) return NULL;
  return here_ = h;
}

/* Where a ctypes pointer keeps its address; it stays there as long as the object lives. NULL with an exception otherwise. */
void** cell_of(PyObject* object) {
  Py_buffer view;
  void** cell = NULL;
  if (PyObject_GetBuffer(object, &view, PyBUF_SIMPLE)) return NULL;
  if (view.len == (Py_ssize_t)sizeof(void*))
    cell = view.buf;
  else
    PyErr_SetString(PyExc_TypeError, "a pointer of ctypes is wanted");
  PyBuffer_Release(&view);
  return cell;
}

/* True if the context of a handle computes what is recorded (_context._WaitingHandle says so). */
static int waits_of(PyObject* handle) {
  PyObject* value = PyObject_GetAttr(handle, name_waits);
  if (value == NULL) PyErr_Clear(); /* the body of a function: nothing runs there */
  Py_XDECREF(value);
  return value == Py_True;
}

static PyObject* now_get(PyObject* self, void* place) {
  Here* h = here();
  PyObject* value;
  (void)self;
  if (h == NULL) return NULL;
  value = h->object[(intptr_t)place];
  return Py_NewRef(value == NULL ? Py_None : value);
}

static int now_set(PyObject* self, PyObject* value, void* where) {
  const intptr_t place = (intptr_t)where;
  Here* h = here();
  void** cell = NULL;
  (void)self;
  if (h == NULL) return -1;
  if (value == Py_None) value = NULL;
  if (value != NULL && place != kChanged && (cell = cell_of(value)) == NULL) return -1;
  h->cell[place] = cell;
  if (place == kContext) h->waits = value != NULL && waits_of(value);
  put(&h->object[place], value == NULL ? NULL : Py_NewRef(value));
  return 0;
}

/* The context that is recorded into, as address and (borrowed) as object, and whether it waits; NULL with an exception where
 * there can be none. */
weft_context* context_of(Here* h, PyObject** object, int* waits) {
  *object = NULL;
  if (h->cell[kContext] != NULL && *h->cell[kContext] != NULL) {
    *object = h->object[kContext];
    *waits = h->waits;
    return *h->cell[kContext];
  }
  if (own_cell == NULL) {
    PyObject* made = PyObject_CallNoArgs(start);
    if (made == NULL) return NULL;
    Py_DECREF(made);
    if (own_cell == NULL) {
      PyErr_SetString(PyExc_RuntimeError, "the process's context has ended");
      return NULL;
    }
  }
  *object = own;
  *waits = own_waits;
  return *own_cell;
}

/* --- positions */

static struct File {
  PyObject *code, *bytes; /* bytes is NULL for the package's own files */
} files[kFiles];

/* What is kept of a code object's file. NULL with an exception. */
static struct File* file_of(PyObject* code) {
  struct File* file = &files[((uintptr_t)code >> 5) % kFiles];
  PyObject *name, *bytes = NULL;
  int own_file;
  if (file->code == code) return file;
  name = PyObject_GetAttr(code, name_file);
  if (name == NULL) return NULL;
  own_file = PyUnicode_Tailmatch(name, package, 0, PY_SSIZE_T_MAX, -1) == 1;
  if (!own_file) bytes = PyUnicode_AsEncodedString(name, "utf-8", "surrogateescape");
  Py_DECREF(name);
  if (!own_file && bytes == NULL) return NULL;
  put(&file->code, Py_NewRef(code));
  put(&file->bytes, bytes);
  return file;
}

PyObject* py_mark_with(PyObject* self, PyObject* function) {
  (void)self;
  put(&whole_stacks, function == Py_None ? NULL : Py_NewRef(function));
  Py_RETURN_NONE;
}

/* Marks the frame and all around it if the context wants them: 1 if it does, 0 if not, -1 with an exception. */
static int mark_stack(weft_context* context, PyObject* frame) {
  PyObject* said = PyObject_CallFunction(whole_stacks, "KO", (unsigned long long)(uintptr_t)context,
                                         frame == NULL ? Py_None : frame);
  const int marked = said == Py_True;
  if (said == NULL) return -1;
  Py_DECREF(said);
  return marked;
}

/* Says to the library where the caller's code is: the innermost frame that is not the package's. */
int mark(weft_context* context) {
  PyObject* frame = (PyObject*)PyEval_GetFrame();
  struct File* file = NULL;
  weft_error* error;
  if (whole_stacks != NULL) {
    const int marked = mark_stack(context, frame);
    if (marked != 0) return marked < 0 ? -1 : 0;
  }
  Py_XINCREF(frame);
  while (frame != NULL) {
    PyObject *code = (PyObject*)PyFrame_GetCode((PyFrameObject*)frame), *outer;
    file = file_of(code);
    Py_DECREF(code);
    if (file == NULL) {
      Py_DECREF(frame);
      return -1;
    }
    if (file->bytes != NULL) break;
    outer = PyObject_GetAttr(frame, name_back);
    Py_DECREF(frame);
    if (outer == NULL) return -1;
    frame = outer;
    if (frame == Py_None) Py_CLEAR(frame);
  }
  if (frame == NULL) return 0;
  error = c.mark(context, PyBytes_AsString(file->bytes), (size_t)PyBytes_Size(file->bytes),
                 PyFrame_GetLineNumber((PyFrameObject*)frame));
  Py_DECREF(frame);
  if (error != NULL) c.release_error(error);
  return 0;
}

int changed_here(PyObject* value) {
  PyObject *frame = (PyObject*)PyEval_GetFrame(), *code, *last, *place = NULL, *before = NULL;
  struct File* file;
  if (frame == NULL || numbers == NULL) return -1;
  code = (PyObject*)PyFrame_GetCode((PyFrameObject*)frame);
  file = file_of(code);
  Py_DECREF(code); /* the frame has it */
  if (file == NULL || file->bytes == NULL) return -1;
  code = PyLong_FromVoidPtr(code); /* as Python's id() is */
  last = PyObject_GetAttr(frame, name_last);
  if (code != NULL && last != NULL) place = PyTuple_Pack(2, code, last);
  Py_XDECREF(code);
  Py_XDECREF(last);
  if (place != NULL) before = PyDict_GetItemWithError(numbers, place);
  Py_XDECREF(place);
  return before == NULL ? -1 : before == changed ? 1 : before == value ? 0 : -1;
}

PyObject* py_mark(PyObject* self, PyObject* none) {
  Here* h = here();
  PyObject* object;
  weft_context* context;
  int waits;
  (void)self, (void)none;
  if (h == NULL) return NULL;
  context = context_of(h, &object, &waits);
  if (object == NULL) return NULL;
  Py_INCREF(object);
  if (mark(context)) {
    Py_DECREF(object);
    return NULL;
  }
  return object;
}

PyObject* py_set_own(PyObject* self, PyObject* handle) {
  void** cell = NULL;
  (void)self;
  if (handle != Py_None && (cell = cell_of(handle)) == NULL) return NULL;
  own_cell = cell;
  own_waits = waits_of(handle);
  put(&own, handle == Py_None ? NULL : Py_NewRef(handle));
  Py_RETURN_NONE;
}

static PyGetSetDef now_properties[] = {{"context", now_get, now_set, NULL, (void*)kContext},
                                       {"scope", now_get, now_set, NULL, (void*)kScope},
                                       {"body", now_get, now_set, NULL, (void*)kBody},
                                       {"changed", now_get, now_set, NULL, (void*)kChanged},
                                       {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot now_slots[] = {{Py_tp_getset, now_properties}, {0, NULL}};
PyType_Spec now_spec = {"libweft._accelerator.Now", sizeof(PyObject), 0, Py_TPFLAGS_DEFAULT, now_slots};

int begin_here(void) {
  name_back = PyUnicode_InternFromString("f_back");
  name_waits = PyUnicode_InternFromString("waits");
  name_last = PyUnicode_InternFromString("f_lasti");
  name_file = PyUnicode_InternFromString("co_filename");
  return name_back == NULL || name_waits == NULL || name_last == NULL || name_file == NULL ? -1 : 0;
}
