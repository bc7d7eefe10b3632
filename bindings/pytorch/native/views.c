/* Views: what torch says of sizes, strides and offset as operations on the cell's tensor, for reading and for writing.
 *
 * The cell's tensor is dense in its home shape. A view is a box of it if each dimension of the view steps along one
 * dimension of the home shape: then reading is slice, reshape, transpose, broadcast, and writing one update of a slice.
 * Where the home shape does not fit, the dense shape that the view's own strides imply is tried. Everything else is read
 * by indices and written by them.
 */
#include <string.h>

#include "weft_torch.h"

/* How a view lies in a dense shape. */
typedef struct Box {
  int home_rank;
  int64_t home[MAX_RANK];
  int64_t start[MAX_RANK], limit[MAX_RANK], step[MAX_RANK];
  int of_view[MAX_RANK]; /* home dimension of each view dimension, -1: of size 1 or broadcast */
  bool whole;            /* every element of the home shape */
  bool stepped;          /* some step is not 1 */
  bool broadcast;        /* some element is shown more than once */
} Box;

static bool same_dims(int ndim, const int64_t* a, const int64_t* b) {
  for (int i = 0; i < ndim; ++i) {
    if (a[i] != b[i]) {
      return false;
    }
  }
  return true;
}

bool dense(int ndim, const int64_t* sizes, const int64_t* strides) {
  int64_t expected = 1;
  for (int i = ndim - 1; i >= 0; --i) {
    if (sizes[i] != 1 && strides[i] != expected) {
      return false;
    }
    expected *= sizes[i];
  }
  return true;
}

static void home_strides(int rank, const int64_t* dims, int64_t* out) {
  int64_t stride = 1;
  for (int i = rank - 1; i >= 0; --i) {
    out[i] = stride;
    stride *= dims[i];
  }
}

/* Fits the view into a home shape. */
static bool box_fit(const View* view, int rank, const int64_t* home, Box* box) {
  int64_t strides[MAX_RANK];
  bool used[MAX_RANK] = {false};
  int64_t rest = view->offset;
  home_strides(rank, home, strides);
  box->home_rank = rank;
  box->whole = true;
  box->stepped = box->broadcast = false;
  for (int j = 0; j < rank; ++j) {
    box->home[j] = home[j];
    box->start[j] = rest / strides[j];
    rest %= strides[j];
    box->limit[j] = box->start[j] + 1;
    box->step[j] = 1;
    if (box->start[j] >= home[j]) {
      return false;
    }
  }
  for (int i = 0; i < view->ndim; ++i) {
    box->of_view[i] = -1;
    if (view->sizes[i] == 1) {
      continue;
    }
    if (view->strides[i] == 0) {
      box->broadcast = true;
      continue;
    }
    int found = -1;
    for (int j = 0; j < rank && found < 0; ++j) {
      if (!used[j] && home[j] > 1 && view->strides[i] % strides[j] == 0 &&
          box->start[j] + (view->sizes[i] - 1) * (view->strides[i] / strides[j]) < home[j]) {
        found = j;
      }
    }
    if (found < 0) {
      return false;
    }
    used[found] = true;
    box->of_view[i] = found;
    box->step[found] = view->strides[i] / strides[found];
    box->limit[found] = box->start[found] + (view->sizes[i] - 1) * box->step[found] + 1;
    box->stepped = box->stepped || box->step[found] != 1;
  }
  for (int j = 0; j < rank; ++j) {
    box->whole = box->whole && box->limit[j] - box->start[j] == home[j] && box->step[j] == 1;
  }
  return true;
}

/* The dense shape whose strides are the view's: for views that split or join dimensions of the home shape. */
static bool box_from_strides(const View* view, int64_t count, Box* box) {
  int64_t strides[MAX_RANK + 1];
  int rank = 0;
  for (int i = 0; i < view->ndim; ++i) {
    if (view->sizes[i] == 1 || view->strides[i] == 0) {
      continue;
    }
    int at = 0;
    while (at < rank && strides[at] > view->strides[i]) {
      ++at;
    }
    if (at < rank && strides[at] == view->strides[i]) {
      return false;
    }
    memmove(strides + at + 1, strides + at, (size_t)(rank - at) * sizeof(int64_t));
    strides[at] = view->strides[i];
    if (++rank == MAX_RANK) {
      return false;
    }
  }
  if (rank == 0) {
    return false;
  }
  int64_t home[MAX_RANK];
  if (count % strides[0] != 0) {
    return false;
  }
  home[0] = count / strides[0];
  for (int i = 1; i < rank; ++i) {
    if (strides[i - 1] % strides[i] != 0) {
      return false;
    }
    home[i] = strides[i - 1] / strides[i];
  }
  int home_rank = rank;
  if (strides[rank - 1] != 1) {
    home[home_rank++] = strides[rank - 1];
  }
  return home_rank < MAX_RANK && box_fit(view, home_rank, home, box);
}

/* The order in which view dimensions lie in the home shape; returns how many there are. */
static int box_order(const View* view, const Box* box, int* order) {
  int count = 0;
  for (int j = 0; j < box->home_rank; ++j) {
    for (int i = 0; i < view->ndim; ++i) {
      if (box->of_view[i] == j) {
        order[count++] = i;
      }
    }
  }
  return count;
}

static bool box_read(const View* view, const Box* box, Typed* value) {
  if (!reshape_to(value, box->home_rank, box->home)) {
    return false;
  }
  if (!box->whole) {
    weft_attr attrs[3] = {attr_ints("start_indices", box->start, (size_t)box->home_rank),
                          attr_ints("limit_indices", box->limit, (size_t)box->home_rank),
                          attr_ints("strides", box->step, (size_t)box->home_rank)};
    if (!step1("slice", value, attrs, 3)) {
      return false;
    }
  }
  int order[MAX_RANK];
  int64_t dims[MAX_RANK], permutation[MAX_RANK];
  int count = box_order(view, box, order);
  for (int k = 0; k < count; ++k) {
    dims[k] = view->sizes[order[k]];
  }
  if (!reshape_to(value, count, dims)) {
    return false;
  }
  bool moved = false;
  int next = 0;
  for (int i = 0; i < view->ndim; ++i) {
    for (int k = 0; k < count; ++k) {
      if (order[k] == i) {
        moved = moved || k != next;
        permutation[next++] = k;
      }
    }
  }
  weft_attr attr = attr_ints("permutation", permutation, (size_t)count);
  if (moved && !step1("transpose", value, &attr, 1)) {
    return false;
  }
  if (!box->broadcast) {
    return reshape_to(value, view->ndim, view->sizes);
  }
  for (int i = 0; i < view->ndim; ++i) {
    dims[i] = view->strides[i] == 0 ? 1 : view->sizes[i];
  }
  attr = attr_ints("shape", view->sizes, (size_t)view->ndim);
  return reshape_to(value, view->ndim, dims) && step1("broadcast_to", value, &attr, 1);
}

/* Where in the flat cell each element of the view is, in the view's order: offset + sum of stride times index. */
static bool flat_indices(const View* view, bool wide, Typed* out) {
  uint32_t dtype = wide ? WEFT_I64 : WEFT_I32;
  if (!scalar_i64(dtype, view->device, view->offset, out)) {
    return false;
  }
  for (int i = 0; i < view->ndim; ++i) {
    Typed along, stride, product, sum;
    weft_attr attrs[3] = {attr_ints("shape", view->sizes, (size_t)view->ndim), attr_int("dimension", i),
                          attr_dtype("dtype", dtype)};
    if (view->sizes[i] == 1 || view->strides[i] == 0) {
      continue;
    }
    if (!apply("iota", NULL, 0, attrs, 3, view->device, &along)) {
      typed_release(out);
      return false;
    }
    bool good = scalar_i64(dtype, view->device, view->strides[i], &stride);
    if (good) {
      weft_tensor* factors[2] = {along.handle, stride.handle};
      good = apply("mul", factors, 2, NULL, 0, view->device, &product);
      typed_release(&stride);
    }
    typed_release(&along);
    if (good) {
      weft_tensor* summands[2] = {product.handle, out->handle};
      good = apply("add", summands, 2, NULL, 0, view->device, &sum);
      typed_release(&product);
    }
    typed_release(out);
    if (!good) {
      return false;
    }
    *out = sum;
  }
  weft_attr attr = attr_ints("shape", view->sizes, (size_t)view->ndim);
  return same_dims(out->ndim, out->dims, view->sizes) && out->ndim == view->ndim ? true
                                                                                 : step1("broadcast_to", out, &attr, 1);
}

static bool read_by_indices(const View* view, int64_t count, Typed* value) {
  Typed indices, out;
  if (!reshape_to(value, 1, &count)) {
    return false;
  }
  if (!flat_indices(view, count > INT32_MAX, &indices)) {
    typed_release(value);
    return false;
  }
  weft_tensor* inputs[2] = {value->handle, indices.handle};
  bool good = apply("take", inputs, 2, NULL, 0, view->device, &out);
  typed_release(&indices);
  typed_release(value);
  if (good) {
    *value = out;
  }
  return good;
}

static bool read_empty(const View* view, Typed* out) {
  weft_attr attrs[3] = {attr_ints("shape", view->sizes, (size_t)view->ndim),
                        attr_dtype("dtype", view->dtype),
                        {.name = "value", .name_length = WEFT_STRLEN, .type = WEFT_VALUE_DOUBLE}};
  return apply("full", NULL, 0, attrs, 3, view->device, out);
}

static void cell_typed(Cell* cell, weft_tensor* handle, Typed* out) {
  weft->tensor_retain(handle);
  out->handle = handle;
  out->dtype = cell->dtype;
  out->device = cell->device;
  out->ndim = cell->ndim;
  memcpy(out->dims, cell->dims, (size_t)cell->ndim * sizeof(int64_t));
}

bool view_read(const View* view, Typed* out) {
  if (view->ndim > MAX_RANK) {
    error_set(WEFT_UNIMPLEMENTED, "a tensor of %d dimensions: the device xla has at most %d", (int)view->ndim,
              MAX_RANK);
    return false;
  }
  if (view->count == 0) {
    return read_empty(view, out);
  }
  Cell* cell = view->cell;
  weft_tensor* handle = cell_handle(cell);
  if (handle == NULL) {
    return false;
  }
  cell_typed(cell, handle, out);
  int64_t count = cell->count;
  if (view->dtype != cell->dtype && !reinterpret_flat(out, count, view->dtype, &count)) {
    return false;
  }
  if (view->offset == 0 && view->count == count && dense(view->ndim, view->sizes, view->strides)) {
    return reshape_to(out, view->ndim, view->sizes);
  }
  Box box;
  if (box_fit(view, out->ndim, out->dims, &box) || box_from_strides(view, count, &box)) {
    return box_read(view, &box, out);
  }
  return read_by_indices(view, count, out);
}

/* Makes `value`, which it takes over, the cell's: the handle stays, so that every view and every alias sees it. Fresh:
 * nobody else has the value's handle.
 */
static bool cell_assign(Cell* cell, Typed* value, bool fresh) {
  if (!reshape_to(value, cell->ndim, cell->dims)) {
    return false;
  }
  weft_tensor* handle = __atomic_load_n(&cell->handle, __ATOMIC_ACQUIRE);
  if (handle == NULL) { /* the first write: a handle of its own, if others may hold the value's */
    weft_attr attr = attr_ints("shape", cell->dims, (size_t)cell->ndim);
    if (!fresh && !step1("reshape", value, &attr, 1)) {
      return false;
    }
    weft_tensor* none = NULL;
    if (__atomic_compare_exchange_n(&cell->handle, &none, value->handle, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
      return true;
    }
    handle = none;
  }
  bool good = error_take(weft->tensor_assign(handle, value->handle), NULL);
  typed_release(value);
  return good;
}

/* The update in the order of the home shape, with its dimensions of size 1. */
static bool box_update(const View* view, const Box* box, Typed* update) {
  int order[MAX_RANK];
  int64_t permutation[MAX_RANK], dims[MAX_RANK];
  int count = box_order(view, box, order), place = 0;
  bool moved = false;
  for (int k = 0; k < count; ++k) {
    permutation[k] = order[k];
  }
  for (int i = 0; i < view->ndim; ++i) { /* dimensions of size 1 go to the end */
    if (box->of_view[i] < 0) {
      permutation[count + place++] = i;
    }
  }
  for (int k = 0; k < view->ndim; ++k) {
    moved = moved || permutation[k] != k;
  }
  weft_attr attr = attr_ints("permutation", permutation, (size_t)view->ndim);
  if (moved && !step1("transpose", update, &attr, 1)) {
    return false;
  }
  for (int j = 0; j < box->home_rank; ++j) {
    dims[j] = (box->limit[j] - box->start[j] - 1) / box->step[j] + 1;
  }
  return reshape_to(update, box->home_rank, dims);
}

static bool box_write(Cell* cell, const Box* box, Typed* update, bool fresh) {
  if (box->whole) {
    return cell_assign(cell, update, fresh);
  }
  weft_tensor* inputs[2 + MAX_RANK];
  Typed home, starts[MAX_RANK], out;
  weft_tensor* handle = cell_handle(cell);
  if (handle == NULL) {
    typed_release(update);
    return false;
  }
  cell_typed(cell, handle, &home);
  bool good = reshape_to(&home, box->home_rank, box->home);
  int made = 0;
  for (; good && made < box->home_rank; ++made) {
    good = scalar_i64(WEFT_I32, cell->device, box->start[made], &starts[made]);
    if (!good) {
      break;
    }
    inputs[2 + made] = starts[made].handle;
  }
  if (good) {
    inputs[0] = home.handle;
    inputs[1] = update->handle;
    good = apply("dynamic_update_slice", inputs, 2 + (size_t)box->home_rank, NULL, 0, cell->device, &out);
  }
  for (int j = 0; j < made; ++j) {
    typed_release(&starts[j]);
  }
  typed_release(&home);
  typed_release(update);
  return good && cell_assign(cell, &out, true);
}

/* Scatters the update into the flat elements, which are of the view's dtype; releases both. */
static bool scatter_flat(const View* view, Typed* home, int64_t count, Typed* update, Typed* out) {
  int64_t column[2] = {view->count, 1}, zero = 0;
  Typed indices;
  bool good = reshape_to(update, 1, &view->count);
  if (good && !flat_indices(view, count > INT32_MAX, &indices)) {
    typed_release(update);
    good = false;
  }
  if (!good) {
    typed_release(home);
    return false;
  }
  good = reshape_to(home, 1, &count) && reshape_to(&indices, 2, column);
  if (good) {
    weft_tensor* inputs[3] = {home->handle, indices.handle, update->handle};
    weft_attr attrs[5] = {attr_ints("update_window_dims", &zero, 0), attr_ints("inserted_window_dims", &zero, 1),
                          attr_ints("scatter_dims_to_operand_dims", &zero, 1), attr_int("index_vector_dim", 1),
                          attr_enum("reducer", "set")};
    good = apply("scatter", inputs, 3, attrs, 5, view->device, out);
  }
  typed_release(home);
  typed_release(&indices);
  typed_release(update);
  return good;
}

/* Writes by indices, through another dtype if the view has one; releases the update. */
static bool write_by_indices(const View* view, Typed* update) {
  Cell* cell = view->cell;
  int64_t count = cell->count;
  Typed home, out;
  weft_tensor* handle = cell_handle(cell);
  if (handle == NULL) {
    typed_release(update);
    return false;
  }
  cell_typed(cell, handle, &home);
  if (view->dtype != cell->dtype && !reinterpret_flat(&home, count, view->dtype, &count)) {
    typed_release(update);
    return false;
  }
  if (!scatter_flat(view, &home, count, update, &out)) {
    return false;
  }
  if (view->dtype != cell->dtype && !reinterpret_flat(&out, count, cell->dtype, &count)) {
    return false;
  }
  return cell_assign(cell, &out, true);
}

bool view_write(const View* view, const Typed* value, bool fresh) {
  if (view->count == 0) {
    return true;
  }
  Cell* cell = view->cell;
  Typed update = *value;
  weft->tensor_retain(update.handle);
  weft_attr attr = attr_ints("shape", view->sizes, (size_t)view->ndim);
  bool fits = update.ndim == view->ndim && same_dims(view->ndim, update.dims, view->sizes);
  if (!convert(&update, view->dtype) || (!fits && !step1("broadcast_to", &update, &attr, 1))) {
    return false;
  }
  if (view->dtype != cell->dtype) {
    int64_t count = view->count;
    bool whole = view->offset == 0 && dense(view->ndim, view->sizes, view->strides) &&
                 count * (int64_t)dtype_size(view->dtype) == cell->count * (int64_t)dtype_size(cell->dtype);
    if (!whole) {
      return write_by_indices(view, &update);
    }
    return reinterpret_flat(&update, count, cell->dtype, &count) && cell_assign(cell, &update, fresh);
  }
  if (view->offset == 0 && view->count == cell->count && dense(view->ndim, view->sizes, view->strides)) {
    return cell_assign(cell, &update, fresh);
  }
  Box box;
  bool fitted = box_fit(view, cell->ndim, cell->dims, &box) || box_from_strides(view, cell->count, &box);
  if (fitted && box.broadcast) {
    error_set(
        WEFT_INVALID_ARGUMENT,
        "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
        "Please clone() the tensor before performing the operation.");
    typed_release(&update);
    return false;
  }
  if (fitted && !box.stepped) {
    return box_update(view, &box, &update) && box_write(cell, &box, &update, fresh);
  }
  return write_by_indices(view, &update);
}
