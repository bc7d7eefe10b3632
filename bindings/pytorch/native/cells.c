/* Cells: what storages of the device xla stand for. A storage's pointer is no memory but the cell's number, so that
 * pointer plus bytes into a view still says which cell and how far into it: bit 62 is set, 24 bits are the number, 38 the
 * bytes.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "weft_torch.h"

enum { OFFSET_BITS = 38, NUMBER_BITS = 24, CHUNK_BITS = 12, CHUNK = 1 << CHUNK_BITS };
#define POINTER_TAG ((uint64_t)1 << 62)
#define OFFSET_MASK (((uint64_t)1 << OFFSET_BITS) - 1)

static Cell** chunks[1 << (NUMBER_BITS - CHUNK_BITS)];
static uint32_t* free_numbers;
static uint32_t free_count, free_capacity, used_numbers;
static pthread_mutex_t numbers_lock = PTHREAD_MUTEX_INITIALIZER;

size_t dtype_size(uint32_t dtype) { return (((dtype >> 8) & 0xff) + 7) / 8; }

int torch_of(uint32_t dtype) {
  for (int i = 0; i < 64; ++i) {
    if (torch.weft_of[i] == dtype && dtype != 0) {
      return i;
    }
  }
  return -1;
}

const char* dtype_text(uint32_t dtype) {
  switch (dtype) {
    case WEFT_F32: return "Float";
    case WEFT_F64: return "Double";
    case WEFT_F16: return "Half";
    case WEFT_BF16: return "BFloat16";
    case WEFT_I8: return "Char";
    case WEFT_U8: return "Byte";
    case WEFT_I16: return "Short";
    case WEFT_I32: return "Int";
    case WEFT_I64: return "Long";
    case WEFT_BOOL: return "Bool";
    case WEFT_C64: return "ComplexFloat";
    case WEFT_C128: return "ComplexDouble";
    default: return "";
  }
}

/* Numbers of ended cells are given out again, the one that ended longest ago last. Returns 0 where there is none. */
static uint32_t number_take(Cell* cell) {
  uint32_t number = 0;
  pthread_mutex_lock(&numbers_lock);
  if (free_count > 0) {
    number = free_numbers[--free_count];
  } else if (used_numbers + 1 < (1u << NUMBER_BITS)) {
    number = ++used_numbers;
    if (chunks[number >> CHUNK_BITS] == NULL) {
      chunks[number >> CHUNK_BITS] = calloc(CHUNK, sizeof(Cell*));
      if (chunks[number >> CHUNK_BITS] == NULL) {
        --used_numbers;
        number = 0;
      }
    }
  }
  if (number != 0) {
    chunks[number >> CHUNK_BITS][number & (CHUNK - 1)] = cell;
  }
  pthread_mutex_unlock(&numbers_lock);
  return number;
}

static void number_give(uint32_t number) {
  pthread_mutex_lock(&numbers_lock);
  chunks[number >> CHUNK_BITS][number & (CHUNK - 1)] = NULL;
  if (free_count == free_capacity) {
    uint32_t capacity = free_capacity == 0 ? 1024 : free_capacity * 2;
    uint32_t* grown = realloc(free_numbers, capacity * sizeof(uint32_t));
    if (grown != NULL) {
      free_numbers = grown;
      free_capacity = capacity;
    }
  }
  if (free_count < free_capacity) {
    free_numbers[free_count++] = number; /* without memory for it the number is never used again */
  }
  pthread_mutex_unlock(&numbers_lock);
}

static void numbers_hold(void) { pthread_mutex_lock(&numbers_lock); }
static void numbers_let_go(void) { pthread_mutex_unlock(&numbers_lock); }

/* In fork itself, not by Python's hooks: between those another thread may get the GIL, and wait there for the lock. */
bool cells_guard_forks(void) { return pthread_atfork(numbers_hold, numbers_let_go, numbers_let_go) == 0; }

bool cells_used(void) {
  pthread_mutex_lock(&numbers_lock);
  bool used = used_numbers > 0;
  pthread_mutex_unlock(&numbers_lock);
  return used;
}

size_t cells_alive(void) {
  pthread_mutex_lock(&numbers_lock);
  size_t alive = used_numbers - free_count;
  pthread_mutex_unlock(&numbers_lock);
  return alive;
}

static void cell_end(DLManagedTensorVersioned* managed) {
  Cell* cell = (Cell*)managed;
  number_give(cell->number);
  if (cell->handle != NULL) {
    weft->tensor_release(cell->handle);
  }
  free(cell);
}

Cell* cell_new(uint32_t dtype, int32_t device, int ndim, const int64_t* dims, weft_tensor* handle) {
  Cell* cell = calloc(1, sizeof(Cell) + 2 * (size_t)ndim * sizeof(int64_t));
  if (cell == NULL) {
    error_set(WEFT_RESOURCE_EXHAUSTED, "no memory for a tensor");
    weft->tensor_release(handle);
    return NULL;
  }
  cell->handle = handle;
  cell->dtype = dtype;
  cell->device = device;
  cell->ndim = ndim;
  cell->count = 1;
  int64_t step = 1; /* as count, with dimensions of size 0 left out, as torch's strides have it */
  bool named = true;
  for (int i = ndim - 1; i >= 0; --i) {
    cell->dims[i] = dims[i];
    cell->dims[ndim + i] = step;
    cell->count *= dims[i] != 0; /* below: count is step, or 0 */
    named = named && !__builtin_mul_overflow(step, dims[i] > 1 ? dims[i] : 1, &step);
  }
  cell->count *= named ? step : 0;
  named = named && (uint64_t)step <= OFFSET_MASK / dtype_size(dtype);
  cell->number = named ? number_take(cell) : 0;
  if (cell->number == 0) {
    error_set(WEFT_RESOURCE_EXHAUSTED, named ? "one more tensor is more than the device xla can name"
                                             : "a tensor of more than %lld bytes is more than the device xla can name",
              (long long)OFFSET_MASK);
    weft->tensor_release(handle);
    free(cell);
    return NULL;
  }
  cell->managed.major = 1;
  cell->managed.deleter = cell_end;
  DLTensor* tensor = &cell->managed.dl_tensor;
  tensor->data = (void*)(POINTER_TAG | ((uint64_t)cell->number << OFFSET_BITS));
  tensor->device.type = DL_EXTERNAL;
  tensor->device.index = device;
  tensor->ndim = ndim;
  tensor->dtype = dtype;
  tensor->shape = cell->dims;
  tensor->strides = cell->dims + ndim;
  return cell;
}

Cell* cell_find(const void* pointer, int64_t* out_bytes) {
  uint64_t value = (uint64_t)pointer;
  if ((value >> (OFFSET_BITS + NUMBER_BITS)) != POINTER_TAG >> (OFFSET_BITS + NUMBER_BITS)) {
    return NULL;
  }
  uint32_t number = (uint32_t)(value >> OFFSET_BITS) & ((1u << NUMBER_BITS) - 1);
  Cell** chunk = chunks[number >> CHUNK_BITS];
  *out_bytes = (int64_t)(value & OFFSET_MASK);
  return chunk == NULL ? NULL : chunk[number & (CHUNK - 1)];
}

PyObject* cell_object(Cell* cell) {
  void* object = NULL;
  if (torch.exchange->to_object(&cell->managed, &object) != 0) {
    error_set(ERROR_RAISED, "torch made no tensor");
    return NULL;
  }
  return object;
}

AtenTensorHandle cell_tensor(Cell* cell) {
  AtenTensorHandle tensor = NULL;
  PyGILState_STATE state = PyGILState_Ensure();
  PyObject* object = cell_object(cell);
  if (object == NULL) {
    PyErr_Clear();
    error_set(WEFT_INTERNAL, "torch made no tensor");
  } else {
    if (torch.from_object(object, &tensor) != 0) {
      error_set(WEFT_INTERNAL, "torch gave no handle of a tensor");
      tensor = NULL;
    }
    Py_DECREF(object);
  }
  PyGILState_Release(state);
  return tensor;
}

/* A tensor that nothing was written to has zeros: made when they are first read. */
weft_tensor* cell_handle(Cell* cell) {
  weft_tensor* handle = __atomic_load_n(&cell->handle, __ATOMIC_ACQUIRE);
  if (handle != NULL) {
    return handle;
  }
  weft_attr attrs[3] = {attr_ints("shape", cell->dims, (size_t)cell->ndim), attr_dtype("dtype", cell->dtype)};
  attrs[2] = (weft_attr){.name = "value", .name_length = WEFT_STRLEN, .type = WEFT_VALUE_DOUBLE};
  Typed made;
  if (!apply("full", NULL, 0, attrs, 3, cell->device, &made)) {
    return NULL;
  }
  weft_tensor* none = NULL;
  if (!__atomic_compare_exchange_n(&cell->handle, &none, made.handle, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
    weft->tensor_release(made.handle);
    return none;
  }
  return made.handle;
}

static bool view_finish(View* out, void* data, int device_type, int device_index) {
  out->cell = NULL;
  out->host = NULL;
  out->offset = 0;
  out->device = device_index;
  out->count = 1;
  for (int i = 0; i < out->ndim; ++i) {
    out->count *= out->sizes[i];
  }
  if (device_type == DL_CPU && out->ndim == 0) {
    out->host = data;
    return true;
  }
  if (device_type != DL_EXTERNAL) {
    error_set(WEFT_INVALID_ARGUMENT, "Input tensor is not an XLA tensor: torch.%sTensor", dtype_text(out->dtype));
    return false;
  }
  if (out->count == 0) {
    return true;
  }
  int64_t bytes = 0;
  out->cell = cell_find(data, &bytes);
  if (out->cell == NULL) {
    error_set(WEFT_INVALID_ARGUMENT, "Input tensor is not an XLA tensor: its storage is none of this device's");
    return false;
  }
  out->offset = bytes / (int64_t)dtype_size(out->dtype);
  return true;
}

bool view_of_object(PyObject* object, View* out) {
  DLTensor tensor;
  if (torch.exchange->borrow(object, &tensor) != 0) {
    error_set(ERROR_RAISED, "no tensor");
    return false;
  }
  out->dtype = tensor.dtype;
  out->ndim = tensor.ndim;
  out->sizes = tensor.shape;
  out->strides = tensor.strides;
  return view_finish(out, (char*)tensor.data + tensor.byte_offset, tensor.device.type, tensor.device.index);
}

bool view_of_tensor(AtenTensorHandle tensor, View* out) {
  int64_t ndim = 0;
  int64_t *sizes = NULL, *strides = NULL;
  int32_t dtype = 0, type = 0, index = 0;
  void* data = NULL;
  torch.get_dim(tensor, &ndim);
  torch.get_sizes(tensor, &sizes);
  torch.get_strides(tensor, &strides);
  torch.get_dtype(tensor, &dtype);
  torch.get_device_type(tensor, &type);
  torch.get_device_index(tensor, &index);
  bool ours = type == 20;
  if ((ours || (type == 0 && ndim == 0)) && torch.get_data(tensor, &data) != 0) {
    error_set(WEFT_INVALID_ARGUMENT, "a tensor without storage cannot be used on the device xla");
    return false;
  }
  out->dtype = dtype >= 0 && dtype < 64 ? torch.weft_of[dtype] : 0;
  if (out->dtype == 0) {
    error_set(WEFT_UNIMPLEMENTED, "the device xla has no such dtype (torch's number %d)", (int)dtype);
    return false;
  }
  out->ndim = (int32_t)ndim;
  out->sizes = sizes;
  out->strides = strides;
  return view_finish(out, data, ours ? DL_EXTERNAL : type == 0 ? DL_CPU : -1, index);
}
