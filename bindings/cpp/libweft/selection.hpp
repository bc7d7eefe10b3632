/* Calls that give several tensors, or as many elements as the data say: split, chunk, unstack, nonzero, unique,
 * indexing. */
#ifndef LIBWEFT_SELECTION_HPP
#define LIBWEFT_SELECTION_HPP

#include "operators.hpp"
#include "results.hpp"

namespace weft {
#if defined(__cpp_exceptions)
inline namespace throwing {
#else
inline namespace returning {
#endif

[[nodiscard]] inline result<tensors> try_split(const tensor& x, const ints& sizes, std::int64_t axis = 0) {
  detail::elements<weft_tensor*> out(sizes.size());
  weft_context* const context = x.context_handle();
  weft_error* raw = weft_split(context, x.get(), sizes.data(), sizes.size(), axis, out.data());
  return detail::made_tensors(raw, context, out.data(), out.size());
}
/* Cuts x along an axis into parts of these sizes, which add up to the axis. Errors: invalid_argument. Since 1.2. */
[[nodiscard]] inline tensors split(const tensor& x, const ints& sizes, std::int64_t axis = 0) {
  return detail::must(try_split(x, sizes, axis));
}

namespace detail {
/* The parts that `call` writes, of which there are at most `most`. */
template <class F>
result<tensors> parts(const tensor& x, std::int64_t most, F call) {
  detail::elements<weft_tensor*> out(most > 0 ? static_cast<std::size_t>(most) : 0);
  std::size_t count = 0;
  weft_context* const context = x.context_handle();
  weft_error* raw = call(context, out.data(), out.size(), &count);
  return made_tensors(raw, context, out.data(), raw == nullptr ? count : 0);
}
}  // namespace detail

[[nodiscard]] inline result<tensors> try_chunk(const tensor& x, std::int64_t chunks, std::int64_t axis = 0) {
  auto sizes = x.try_shape();
  if (!sizes) return sizes.error();
  std::int64_t longest = 1;  // no axis has more parts than elements
  for (const std::int64_t size : *sizes) longest = size > longest ? size : longest;
  return detail::parts(x, chunks < longest ? chunks : longest,
                       [&](auto* context, auto** out, std::size_t room, std::size_t* count) {
                         return weft_chunk(context, x.get(), chunks, axis, out, room, count);
                       });
}
/* Cuts x along an axis into equal parts, at most so many; the last may be shorter. Since 1.2. */
[[nodiscard]] inline tensors chunk(const tensor& x, std::int64_t chunks, std::int64_t axis = 0) {
  return detail::must(try_chunk(x, chunks, axis));
}

[[nodiscard]] inline result<tensors> try_unstack(const tensor& x, std::int64_t axis = 0) {
  auto sizes = x.try_shape();
  if (!sizes) return sizes.error();
  const auto rank = static_cast<std::int64_t>(sizes->size());
  const std::int64_t at = axis < 0 ? axis + rank : axis;
  const std::int64_t most = at >= 0 && at < rank ? (*sizes)[static_cast<std::size_t>(at)] : 0;
  return detail::parts(x, most, [&](auto* context, auto** out, std::size_t room, std::size_t* count) {
    return weft_unstack(context, x.get(), axis, out, room, count);
  });
}
/* The tensors at each index of an axis, without that axis. Since 1.2. */
[[nodiscard]] inline tensors unstack(const tensor& x, std::int64_t axis = 0) {
  return detail::must(try_unstack(x, axis));
}

[[nodiscard]] inline result<tensor> try_nonzero(const tensor& x) {
  weft_tensor* out = nullptr;
  weft_error* raw = weft_nonzero(x.context_handle(), x.get(), &out);
  return detail::made(raw, x.context_handle(), out);
}
/* Where x is not zero: i32 [count, rank]. How many there are is computed before the call returns. Blocks. Since 1.2. */
[[nodiscard]] inline tensor nonzero(const tensor& x) { return detail::must(try_nonzero(x)); }
[[nodiscard]] inline result<tensor> try_masked_select(const tensor& x, const tensor& mask) {
  weft_tensor* out = nullptr;
  weft_error* raw = weft_masked_select(x.context_handle(), x.get(), mask.get(), &out);
  return detail::made(raw, x.context_handle(), out);
}
/* The elements of x where the mask is true, as one dimension. Blocks. Since 1.2. */
[[nodiscard]] inline tensor masked_select(const tensor& x, const tensor& mask) {
  return detail::must(try_masked_select(x, mask));
}
[[nodiscard]] inline result<tensor> try_boolean_mask(const tensor& x, const tensor& mask, std::int64_t axis = 0) {
  weft_tensor* out = nullptr;
  weft_error* raw = weft_boolean_mask(x.context_handle(), x.get(), mask.get(), axis, &out);
  return detail::made(raw, x.context_handle(), out);
}
/* The slices of x along an axis where the mask is true. Blocks. Since 1.2. */
[[nodiscard]] inline tensor boolean_mask(const tensor& x, const tensor& mask, std::int64_t axis = 0) {
  return detail::must(try_boolean_mask(x, mask, axis));
}

/* Results of unique: the values in order; which of them each element of x is; how often each is there; where it
 * stands first. */
struct unique_results {
  tensor values, inverse, counts, indices;
};
[[nodiscard]] inline result<unique_results> try_unique(const tensor& x, bool equal_nan = true) {
  std::array<weft_tensor*, 4> out{};
  weft_context* const context = x.context_handle();
  weft_error* raw = weft_unique(context, x.get(), equal_nan ? 1 : 0, &out[0], &out[1], &out[2], &out[3]);
  auto all = detail::made_tensors(raw, context, out.data(), out.size());
  if (!all) return all.error();
  return unique_results{detail::take(*all, 0), detail::take(*all, 1), detail::take(*all, 2), detail::take(*all, 3)};
}
/* The different elements of x in ascending order and what NumPy's unique gives beside them. Blocks. Since 1.2. */
[[nodiscard]] inline unique_results unique(const tensor& x, bool equal_nan = true) {
  return detail::must(try_unique(x, equal_nan));
}

[[nodiscard]] inline result<tensor> try_at(const tensor& x, std::int64_t index, std::int64_t axis = 0) {
  auto part = try_slice_in_dim(
      x, axis, {.start = index, .limit = index == -1 ? maybe<std::int64_t>() : maybe<std::int64_t>(index + 1)});
  if (!part) return part;
  return try_squeeze(*part, {.dims = {axis}});
}
/* The tensor at one index of an axis, which then is gone: x[i] of NumPy. A negative index counts from the end. Errors:
 * invalid_argument. Since 1.2. */
[[nodiscard]] inline tensor at(const tensor& x, std::int64_t index, std::int64_t axis = 0) {
  return detail::must(try_at(x, index, axis));
}

[[nodiscard]] inline result<tensor> try_read_idx(const context& ctx, std::string_view path) {
  weft_tensor* out = nullptr;
  weft_error* raw = weft_idx_read(ctx.get(), path.data(), path.size(), nullptr, &out);
  return detail::made(raw, ctx.get(), out);
}
/* A file of the MNIST family, plain or gzip, as one tensor. Errors: not_found, data_loss, … Blocks. Since 1.2. */
[[nodiscard]] inline tensor read_idx(const context& ctx, std::string_view path) {
  return detail::must(try_read_idx(ctx, path));
}

}  // namespace throwing or returning
}  // namespace weft

#endif  // LIBWEFT_SELECTION_HPP
