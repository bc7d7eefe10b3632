/* What the files of _weft_torch share. The module links neither torch nor Weft: both are tables of functions that
 * torch.c and cells.c fill at load time.
 */
#ifndef WEFT_TORCH_H
#define WEFT_TORCH_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "weft.h"

#define MAX_RANK 32

/* DLPack, version 1: the parts that tensors pass through. */
typedef struct DLDevice {
  int32_t type;
  int32_t index;
} DLDevice;

typedef struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  uint32_t dtype; /* code, bits and lanes, as weft_dtype */
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
} DLTensor;

typedef struct DLManagedTensorVersioned {
  uint32_t major, minor;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensorVersioned* self);
  uint64_t flags;
  DLTensor dl_tensor;
} DLManagedTensorVersioned;

typedef struct DLPackExchange {
  uint32_t major, minor;
  struct DLPackExchange* previous;
  void* allocate;
  void* from_object;
  int (*to_object)(DLManagedTensorVersioned* tensor, void** out);
  int (*borrow)(void* object, DLTensor* out);
  void* stream;
} DLPackExchange;

enum { DL_CPU = 1, DL_EXTERNAL = 12 };

/* torch's stable ABI, as far as the kernels use it. */
typedef uint64_t StableIValue;
typedef struct AtenTensorOpaque* AtenTensorHandle;
typedef struct StableListOpaque* StableListHandle;
typedef struct TorchLibraryOpaque* TorchLibraryHandle;
typedef void (*StableKernel)(StableIValue* stack, uint64_t inputs, uint64_t outputs);

typedef struct TorchApi {
  int32_t (*library_init_impl)(const char* ns, const char* key, const char* file, uint32_t line,
                               TorchLibraryHandle* out);
  int32_t (*library_impl)(TorchLibraryHandle self, const char* name, StableKernel kernel, uint64_t version);
  int32_t (*get_data)(AtenTensorHandle tensor, void** out);
  int32_t (*get_dim)(AtenTensorHandle tensor, int64_t* out);
  int32_t (*get_sizes)(AtenTensorHandle tensor, int64_t** out);
  int32_t (*get_strides)(AtenTensorHandle tensor, int64_t** out);
  int32_t (*get_dtype)(AtenTensorHandle tensor, int32_t* out);
  int32_t (*get_offset)(AtenTensorHandle tensor, int64_t* out);
  int32_t (*get_device_type)(AtenTensorHandle tensor, int32_t* out);
  int32_t (*get_device_index)(AtenTensorHandle tensor, int32_t* out);
  int32_t (*reinterpret)(AtenTensorHandle self, int64_t ndim, const int64_t* sizes, const int64_t* strides,
                         int64_t offset, AtenTensorHandle* out);
  int32_t (*delete_tensor)(AtenTensorHandle tensor);
  int32_t (*list_size)(StableListHandle list, size_t* out);
  int32_t (*list_get)(StableListHandle list, size_t index, StableIValue* out);
  int32_t (*list_delete)(StableListHandle list);
  int32_t (*delete_value)(StableIValue* value);
  int32_t (*from_object)(void* object, AtenTensorHandle* out);
  int32_t (*to_object)(AtenTensorHandle tensor, void* type, void** out);
  void (*check)(bool condition, const char* function, const char* file, uint32_t line, const char* message);
  const char* (*what)(void);
  uint64_t version;
  DLPackExchange* exchange;
  PyObject* result_type;   /* torch.result_type */
  uint32_t weft_of[64];    /* weft_dtype of torch's number, 0 where there is none */
  uint8_t promote[64][64]; /* torch.promote_types by torch's numbers */
} TorchApi;

extern TorchApi torch;
extern const weft_api_v1* weft;
extern weft_context* context;
extern weft_device* devices[64];
extern size_t device_count;

/* What a storage's pointer stands for: a tensor of Weft's with the shape that it was made with. Its handle never
 * changes; in-place operations assign to it. NULL: nothing has been written yet.
 */
typedef struct Cell {
  DLManagedTensorVersioned managed;
  weft_tensor* handle;
  uint32_t number;
  uint32_t dtype;
  int32_t device;
  int32_t ndim;
  int64_t count;
  int64_t dims[]; /* ndim sizes, then ndim strides for torch */
} Cell;

/* A tensor of torch's as kernels see it. Pointers are borrowed from the tensor. */
typedef struct View {
  Cell* cell;       /* NULL: no element, or host memory */
  const void* host; /* of a CPU tensor without dimensions */
  uint32_t dtype;
  int32_t device;
  int32_t ndim;
  const int64_t* sizes;
  const int64_t* strides;
  int64_t offset;
  int64_t count;
} View;

/* A value with what is known of it. Owned: release it. */
typedef struct Typed {
  weft_tensor* handle;
  uint32_t dtype;
  int32_t device;
  int32_t ndim;
  int64_t dims[MAX_RANK];
} Typed;

/* errors.c: one error for each thread, set where it happens and raised where Python or torch is reached. */
void error_set(int code, const char* format, ...) __attribute__((format(printf, 2, 3)));
bool error_take(weft_error* error, const char* operation); /* true if there was none; takes it over */
void error_devices(int32_t one, int32_t other);
PyObject* error_python(void);                              /* raises; returns NULL */
void error_torch(void);                                    /* throws */
enum { ERROR_TYPE = 1000, ERROR_VALUE, ERROR_RAISED };

/* cells.c */
size_t dtype_size(uint32_t dtype);
int torch_of(uint32_t dtype);           /* torch's number, -1: none */
const char* dtype_text(uint32_t dtype); /* torch.FloatTensor's first word */
Cell* cell_new(uint32_t dtype, int32_t device, int ndim, const int64_t* dims,
               weft_tensor* handle); /* takes the handle */
bool cells_guard_forks(void); /* once: no child of a fork finds the numbers half changed */
bool cells_used(void);    /* whether there ever was a cell */
size_t cells_alive(void); /* tensors of torch's that share no memory */
Cell* cell_find(const void* pointer, int64_t* out_bytes);
PyObject* cell_object(Cell* cell);                /* takes the cell; needs the GIL */
AtenTensorHandle cell_tensor(Cell* cell);         /* takes the cell; takes the GIL */
weft_tensor* cell_handle(Cell* cell);             /* borrowed; zeros where nothing was written */
bool view_of_object(PyObject* object, View* out); /* false: error_set */
bool view_of_tensor(AtenTensorHandle tensor, View* out);
bool view_is_number(PyObject* object);

/* views.c */
bool dense(int ndim, const int64_t* sizes, const int64_t* strides); /* without gaps, in order */
bool view_read(const View* view, Typed* out);
bool view_write(const View* view, const Typed* value, bool fresh); /* fresh: nobody else has the value's handle */
/* Says where Python is to the library, if mark_with has given a function that does; called before an operation is recorded. */
void mark_frames(void);
PyObject* mark_with(PyObject* self, PyObject* function);
bool apply(const char* name, weft_tensor* const* inputs, size_t input_count, const weft_attr* attrs, size_t attr_count,
           int32_t device, Typed* out);
bool apply1(const char* name, const Typed* x, const weft_attr* attrs, size_t attr_count, Typed* out);
bool apply2(const char* name, Typed* a, Typed* b, Typed* out); /* releases both operands */
/* In place: `value` is released and replaced, and only released where it fails. */
bool step1(const char* name, Typed* value, const weft_attr* attrs, size_t count);
bool reshape_to(Typed* value, int ndim, const int64_t* dims);
bool convert(Typed* value, uint32_t dtype); /* in place */
bool scalar_f64(uint32_t dtype, int32_t device, double value, Typed* out);
bool scalar_i64(uint32_t dtype, int32_t device, int64_t value, Typed* out);
void typed_release(Typed* value);
weft_attr attr_ints(const char* name, const int64_t* values, size_t count);
weft_attr attr_int(const char* name, int64_t value);
weft_attr attr_dtype(const char* name, uint32_t dtype);
weft_attr attr_enum(const char* name, const char* value);

/* bits.c: the elements as those of another dtype, flat; releases the value where it fails. */
bool reinterpret_flat(Typed* value, int64_t count, uint32_t dtype, int64_t* out_count);

/* promote.c */
typedef struct Operand {
  View view;
  bool number;    /* a Python number or a CPU tensor without dimensions */
  bool wrapped;   /* surely a Python number */
  bool integral;  /* number: in i, else in d */
  bool complex;   /* number: with an imaginary part */
  bool conjugate; /* a complex tensor whose conjugation torch has put off */
  int kind;       /* torch's number of the dtype */
  double d, imaginary;
  int64_t i;
  PyObject* object;        /* borrowed, where there is one */
  AtenTensorHandle tensor; /* borrowed, where there is one */
} Operand;
bool operand_of_object(PyObject* object, Operand* out);
bool operand_is_one(const Operand* number); /* also where there is none */
bool operand_of_tensor(AtenTensorHandle tensor, Operand* out);
int result_kind(Operand* const* operands, size_t count); /* torch's number; -1: error_set */
bool operand_read(const Operand* operand, uint32_t dtype, int32_t device, Typed* out);
/* Numbers that one call for many tensors reads: each is one argument of the program, however many tensors it meets. */
typedef struct Numbers {
  Typed kept[4];
  int64_t bits[4];
  bool integral[4];
  int count;
} Numbers;
void numbers_share(Numbers* numbers); /* for this thread, until numbers_end */
void numbers_end(Numbers* numbers);
int32_t common_device(Operand* const* operands, size_t count); /* -1: error_set */

/* kernels.c */
typedef enum Kind {
  KIND_UNARY,
  KIND_BINARY,
  KIND_MATMUL,
  KIND_AS_STRIDED,
  KIND_VIEW,
  KIND_RESHAPE_ALIAS,
  KIND_UNFOLD,
  KIND_TERNARY
} Kind;
enum {
  FLAG_FLOAT = 1,
  FLAG_COMPARE = 2,
  FLAG_INPLACE = 4,
  FLAG_SWAP = 8,
  FLAG_ALPHA = 16,
  FLAG_BOOL = 32,
  FLAG_INT = 64,
  FLAG_OUT = 128
};
typedef struct Slot {
  Kind kind;
  int flags;
  char operation[48];
  char overload[64];
  uint64_t calls;
} Slot;
PyObject* native_register(PyObject* self, PyObject* args);
PyObject* native_counts(PyObject* self, PyObject* args);
PyObject* native_ready(PyObject* self, PyObject* args);
bool elementwise(const Slot* slot, Operand* a, Operand* b, const Operand* alpha, Typed* out);
bool unary(const Slot* slot, Operand* a, Typed* out);
bool matmul(Operand* a, Operand* b, Typed* out);
bool write_result(const Operand* target, Typed* value,
                  bool fresh); /* casts as in-place operations do; releases the value */

bool write_out(PyObject* object, Operand* target, Typed* value); /* releases the value; `out` grows */

/* tape.c: values made one after the other, all released at the end. Once not `good`, nothing more is made. */
enum { TAPE_VALUES = 48, TAPE_OPERANDS = 7 };
typedef struct Tape {
  Typed made[TAPE_VALUES];
  bool lent[TAPE_VALUES]; /* a tensor shows this handle */
  int count;
  int32_t device;
  bool good;
} Tape;
/* Starts a tape with Python's operands; None leaves an operand without an object. Finds the device that they are on. */
void tape_start(Tape* tape, PyObject* const* objects, int count, Operand* operands);
const Typed* tape_read(Tape* tape, const Operand* operand);
const Typed* tape_make(Tape* tape, const char* name, const weft_attr* attrs, size_t attr_count);
const Typed* tape_with(Tape* tape, const char* name, const Typed* x, const weft_attr* attrs, size_t attr_count);
const Typed* tape_1(Tape* tape, const char* name, const Typed* x);
const Typed* tape_2(Tape* tape, const char* name, const Typed* x, const Typed* y);
const Typed* tape_3(Tape* tape, const char* name, const Typed* x, const Typed* y, const Typed* z);
const Typed* tape_pad(Tape* tape, const Typed* x, const Typed* filler, const weft_attr* attrs); /* 3 attributes */
const Typed* tape_number(Tape* tape, uint32_t dtype, double number);
const Typed* tape_integer(Tape* tape, uint32_t dtype, int64_t number);
const Typed* tape_as(Tape* tape, const Typed* x, uint32_t dtype);
const Typed* tape_working(Tape* tape, const Typed* x); /* in the type that sums are kept in */
const Typed* tape_reduce(Tape* tape, const char* name, const Typed* x, const int64_t* dims, int count, bool keep);
const Typed* tape_reshape(Tape* tape, const Typed* x, const int64_t* dims, int count);
void tape_write(Tape* tape, const Operand* target, const Typed* value); /* in place */
PyObject* tape_tensor(Tape* tape, const Typed* value); /* NULL: raised */
PyObject* tape_tensors(Tape* tape, const Typed* const* values, int count); /* a tuple; None for NULL */
PyObject* tape_end(Tape* tape, PyObject* result); /* gives `result` */
bool wanted_of(PyObject* list, bool* out); /* which of three gradients; false: raised */

/* values.c: the Python type of a value, and calls from Python lowerings. */
typedef struct Value {
  PyObject_HEAD Typed typed;
  bool fresh; /* no tensor shows this handle */
} Value;
extern PyTypeObject* value_type;
bool value_init(PyObject* module);
PyObject* value_new(Typed* typed, bool fresh); /* takes the handle */
extern int64_t values_alive;
extern PyMethodDef value_methods[];

/* layers.c, norms.c, batch_norm.c, losses.c, shapes.c: kernels that are put together from several operations */
extern PyMethodDef layer_methods[];
extern PyMethodDef norm_methods[];
extern PyMethodDef batch_norm_methods[];
extern PyMethodDef loss_methods[];
extern PyMethodDef shape_methods[];

/* callable.c: kernels with number arguments, as Python callables */
PyObject* callable_new(PyObject* self, PyObject* args);
PyObject* callable_call(PyObject* kernel, PyObject* const* args, Py_ssize_t nargs, PyObject* names);
PyObject* callable_kernel(PyObject* function); /* what callable_call takes; borrowed; NULL: raised */

#endif
