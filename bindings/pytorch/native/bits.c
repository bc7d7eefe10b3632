/* The same memory seen as another dtype: torch's view(dtype), and storages, which are bytes. */
#include "weft_torch.h"

/* Two parts of a value by two operations, or of its two columns; releases the value. */
static bool complex_parts(Typed* value, Typed* parts) {
  bool good = apply1("real", value, NULL, 0, &parts[0]);
  if (good && !apply1("imag", value, NULL, 0, &parts[1])) {
    typed_release(&parts[0]);
    good = false;
  }
  typed_release(value);
  return good;
}

static bool column_parts(Typed* value, int64_t rows, Typed* parts) {
  int64_t pairs[2] = {rows, 2}, step[2] = {1, 1};
  bool good = reshape_to(value, 2, pairs);
  for (int k = 0; good && k < 2; ++k) {
    int64_t start[2] = {0, k}, limit[2] = {rows, k + 1};
    weft_attr attrs[3] = {attr_ints("start_indices", start, 2), attr_ints("limit_indices", limit, 2),
                          attr_ints("strides", step, 2)};
    good = apply1("slice", value, attrs, 3, &parts[k]);
    if (!good && k == 1) {
      typed_release(&parts[0]);
    }
  }
  typed_release(value);
  return good;
}

/* Complex numbers are pairs of reals. */
static bool complex_flat(Typed* value, int64_t count, bool from_complex, int64_t out_count) {
  Typed parts[2], out;
  weft_attr axis = attr_int("axis", 1);
  int32_t device = value->device;
  if (!reshape_to(value, 1, &count)) {
    return false;
  }
  if (!(from_complex ? complex_parts(value, parts) : column_parts(value, out_count, parts))) {
    return false;
  }
  weft_tensor* inputs[2] = {parts[0].handle, parts[1].handle};
  bool good = apply(from_complex ? "stack" : "complex", inputs, 2, &axis, from_complex ? 1 : 0, device, &out);
  typed_release(&parts[0]);
  typed_release(&parts[1]);
  if (good) {
    *value = out;
    good = reshape_to(value, 1, &out_count);
  }
  return good;
}

static uint32_t unsigned_of(size_t size) {
  return size == 1 ? WEFT_U8 : size == 2 ? WEFT_U16 : size == 4 ? WEFT_U32 : WEFT_U64;
}

/* The same bits in the same width. Weft's bool is no number, so that it is converted. */
static bool bits_as(Typed* value, uint32_t dtype) {
  if (value->dtype == WEFT_BOOL && !convert(value, WEFT_U8)) {
    return false;
  }
  if (dtype == WEFT_BOOL) {
    return bits_as(value, WEFT_U8) && convert(value, WEFT_BOOL);
  }
  weft_attr attr = attr_dtype("dtype", dtype);
  return value->dtype == dtype || step1("bitcast_convert", value, &attr, 1);
}

/* How far each of `ratio` parts of an element lies in it: 0, bits, 2 * bits, ... */
static bool places(uint32_t dtype, int32_t device, int64_t ratio, size_t part, Typed* out) {
  weft_attr attrs[3] = {attr_ints("shape", &ratio, 1), attr_int("dimension", 0), attr_dtype("dtype", dtype)};
  Typed along, bits;
  if (!apply("iota", NULL, 0, attrs, 3, device, &along)) {
    return false;
  }
  if (!scalar_i64(dtype, device, 8 * (int64_t)part, &bits)) {
    typed_release(&along);
    return false;
  }
  return apply2("mul", &along, &bits, out);
}

/* Each element as several narrower ones. */
static bool split(Typed* value, int64_t count, size_t from, size_t to) {
  int64_t column[2] = {count, 1};
  Typed shifts, shifted, mask;
  if (!bits_as(value, unsigned_of(from)) || !reshape_to(value, 2, column)) {
    return false;
  }
  if (!places(value->dtype, value->device, (int64_t)(from / to), to, &shifts)) {
    typed_release(value);
    return false;
  }
  if (!apply2("shift_right_logical", value, &shifts, &shifted)) {
    return false;
  }
  if (!scalar_i64(shifted.dtype, shifted.device, ((int64_t)1 << (8 * to)) - 1, &mask)) {
    typed_release(&shifted);
    return false;
  }
  return apply2("bitwise_and", &shifted, &mask, value) && convert(value, unsigned_of(to));
}

/* Several elements as one that is wider. */
static bool unite(Typed* value, int64_t out_count, size_t from, size_t to) {
  int64_t pairs[2] = {out_count, (int64_t)(to / from)}, last = 1;
  Typed shifts, shifted;
  if (!bits_as(value, unsigned_of(from)) || !reshape_to(value, 2, pairs) || !convert(value, unsigned_of(to))) {
    return false;
  }
  if (!places(value->dtype, value->device, pairs[1], from, &shifts)) {
    typed_release(value);
    return false;
  }
  if (!apply2("shift_left", value, &shifts, &shifted)) {
    return false;
  }
  weft_attr attr = attr_ints("dims", &last, 1);
  bool good = apply1("sum", &shifted, &attr, 1, value);
  typed_release(&shifted);
  return good;
}

bool reinterpret_flat(Typed* value, int64_t count, uint32_t dtype, int64_t* out_count) {
  size_t from = dtype_size(value->dtype), to = dtype_size(dtype);
  bool from_complex = (value->dtype & 0xff) == 5, to_complex = (dtype & 0xff) == 5;
  *out_count = count * (int64_t)from / (int64_t)to;
  if (from_complex || to_complex) { /* through the reals that it consists of */
    uint32_t part = (from_complex ? value->dtype : dtype) == WEFT_C64 ? WEFT_F32 : WEFT_F64;
    if ((from_complex ? dtype : value->dtype) == part) {
      return complex_flat(value, count, from_complex, *out_count);
    }
    int64_t between = 0;
    return reinterpret_flat(value, count, part, &between) && reinterpret_flat(value, between, dtype, out_count);
  }
  bool good = true;
  if (from != to) {
    good = from > to ? split(value, count, from, to) : unite(value, *out_count, from, to);
  }
  return good && bits_as(value, dtype) && reshape_to(value, 1, out_count);
}
