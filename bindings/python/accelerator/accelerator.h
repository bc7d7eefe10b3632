/* What the accelerator's two files share. */
#ifndef WEFT_ACCELERATOR_H
#define WEFT_ACCELERATOR_H

#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#include <Python.h>
#include <stdint.h>

#include "weft.h"

/* Functions of the library that is open. */
extern struct library {
  weft_error* (*mark)(weft_context*, const char*, size_t, int32_t);
  weft_error* (*share)(weft_scope*, weft_tensor*);
  void (*release)(weft_tensor*);
  void (*release_error)(weft_error*);
  weft_error* (*dtype)(weft_tensor*, weft_dtype*);
  weft_error* (*constant)(weft_tensor*, double, weft_tensor**);
  weft_error* (*argument)(weft_tensor*, double, weft_tensor**);
} c;

/* Python's function that makes the process's context, and the folder of the package as text. */
extern PyObject *start, *package;

/* A thread's surroundings: its context, step and body, and what was assigned to in that. */
enum { kContext, kScope, kBody, kChanged, kPlaces };
typedef struct {
  PyObject* object[kPlaces];
  void** cell[kPlaces]; /* where the object's address lies */
  int waits;            /* the context computes at once what is recorded, and may call back: Python's lock is given up */
} Here;
extern _Thread_local Here* here_;
Here* here_made(void);
/* The calling thread's; NULL with an exception where there is no memory. */
static inline Here* here(void) { return here_ != NULL ? here_ : here_made(); }

void put(PyObject** place, PyObject* value);
void** cell_of(PyObject* object);
weft_context* context_of(Here* h, PyObject** object, int* waits);
int mark(weft_context* context);
/* True if another number than this stood at the caller's place in the program before; -1 where Python is to find out, and with an
 * exception where that fails. */
int changed_here(PyObject* value);
extern PyObject *numbers, *changed; /* _convert's: {place: number}, and what stands there for one that changes */

PyObject* py_mark(PyObject* self, PyObject* none);
PyObject* py_mark_with(PyObject* self, PyObject* function);
PyObject* py_set_own(PyObject* self, PyObject* handle);
extern PyType_Spec now_spec; /* the class Now */
/* Makes the names that are looked up; -1 with an exception. */
int begin_here(void);

#endif /* WEFT_ACCELERATOR_H */
