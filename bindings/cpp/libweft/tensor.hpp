/* weft::tensor of libweft.hpp: making it, reading it, and what it is. */
#ifndef LIBWEFT_TENSOR_HPP
#define LIBWEFT_TENSOR_HPP

#include "types.hpp"

namespace weft {
#if defined(__cpp_exceptions)
inline namespace throwing {
#else
inline namespace returning {
#endif

class context;
class device;

/* How weft::tensor::to_string writes; what is not given is as NumPy has it, but for four digits. Since 1.2. */
struct print_options {
  maybe<std::int64_t> threshold = {};  /* summarise above this many elements */
  maybe<std::int64_t> edge_items = {}; /* elements shown at each end of what is summarised */
  maybe<std::int64_t> precision = {};  /* digits after the point */
  maybe<std::int64_t> line_width = {}; /* in columns */
  bool header = false;                 /* a first line with dtype, shape and device */
};

/* A tensor: recorded and not computed yet, or a buffer on a device. Its dtype and shape are known at once. A value:
 * operations make new ones. A copy is one more reference to the same tensor and costs nothing; assign, copy_from,
 * requires_grad and the steps of optimizers change what that tensor holds, which all copies then show (clone makes
 * one that does not). In an open weft::scope each result belongs to the scope, too: what is read or used after the
 * next barrier is kept (keep). Different threads may use copies of one tensor; one object is, like any of C++, for
 * one thread at a time. Since 1.2. */
class tensor : public detail::handle<weft_tensor, weft_tensor_retain, weft_tensor_release> {
 public:
  /* Nothing: where an operand is left out. */
  tensor() noexcept = default;

  /* A scalar, of the number's own type or of another. It is an argument of the program: other numbers later compile
   * nothing. Errors: invalid_argument where the type cannot hold it. Since 1.2. */
  template <number N>
  tensor(const context& ctx, N value, dtype type) : tensor(detail::must(try_make(ctx, value, type))) {}
  template <number N>
  tensor(const context& ctx, N value) : tensor(detail::must(try_make(ctx, value, dtype_of<N>::value))) {}
  /* From the elements of a range, row by row: one dimension, or what `sizes` says. The bytes are copied before the
   * call returns. Errors: invalid_argument where shape and count differ. Since 1.2. */
  template <element_range R>
  tensor(const context& ctx, R&& values) : tensor(detail::must(try_make(ctx, std::forward<R>(values)))) {}
  template <element_range R>
  tensor(const context& ctx, R&& values, const weft::shape& sizes)
      : tensor(detail::must(try_make(ctx, std::forward<R>(values), sizes))) {}
  template <element T>
  tensor(const context& ctx, std::initializer_list<T> values)
      : tensor(detail::must(try_make(ctx, std::span<const T>(values.begin(), values.size())))) {}
  template <element T>
  tensor(const context& ctx, std::initializer_list<T> values, const weft::shape& sizes)
      : tensor(detail::must(try_make(ctx, std::span<const T>(values.begin(), values.size()), sizes))) {}
  /* From an mdspan whose elements lie dense and row-major. Since 1.2. */
  template <dense_mdspan M>
  tensor(const context& ctx, const M& values) : tensor(detail::must(try_make(ctx, values))) {}

  /* The same with what went wrong as a value. Since 1.2. */
  template <number N>
  [[nodiscard]] static result<tensor> try_make(const context& ctx, N value, dtype type);
  template <element_range R>
  [[nodiscard]] static result<tensor> try_make(const context& ctx, R&& values);
  template <element_range R>
  [[nodiscard]] static result<tensor> try_make(const context& ctx, R&& values, const weft::shape& sizes);
  template <dense_mdspan M>
  [[nodiscard]] static result<tensor> try_make(const context& ctx, const M& values);
  /* From bytes of any element type, those that C++ lacks (i4, f8) too; on a device, empty for the default. Since
   * 1.2. */
  [[nodiscard]] static result<tensor> try_from_bytes(const context& ctx, dtype type, const weft::shape& sizes,
                                                     const void* data, std::size_t size, weft_device* device = nullptr);

  /* Takes over a C tensor with its reference; ctx is the context that it belongs to. Since 1.2. */
  [[nodiscard]] static tensor adopt(weft_context* ctx, weft_tensor* raw) noexcept { return tensor(ctx, raw, 0); }
  /* The C context that the tensor belongs to, borrowed. Since 1.2. */
  [[nodiscard]] weft_context* context_handle() const noexcept { return context_; }

  [[nodiscard]] result<weft::dtype> try_dtype() const;
  /* The element type. Since 1.2. */
  [[nodiscard]] weft::dtype dtype() const { return detail::must(try_dtype()); }
  [[nodiscard]] result<weft::shape> try_shape() const;
  /* The sizes of the dimensions. Since 1.2. */
  [[nodiscard]] weft::shape shape() const { return detail::must(try_shape()); }
  /* The number of dimensions; 0 for a scalar. Since 1.2. */
  [[nodiscard]] std::size_t rank() const { return shape().size(); }
  [[nodiscard]] result<std::int64_t> try_size() const;
  /* The number of elements. Since 1.2. */
  [[nodiscard]] std::int64_t size() const { return detail::must(try_size()); }
  [[nodiscard]] result<std::uint64_t> try_bytes() const;
  /* The size in bytes of the dense form, which `to` writes. Since 1.2. */
  [[nodiscard]] std::uint64_t bytes() const { return detail::must(try_bytes()); }
  /* dtype and shape in one. Since 1.2. */
  [[nodiscard]] tensor_type type() const { return {dtype(), shape()}; }

  template <element T>
  [[nodiscard]] result<void> try_to(std::span<T> out) const;
  /* Evaluates, waits, and writes all elements, row by row. T is the tensor's own type and out as long as the tensor.
   * Errors: invalid_argument, and whatever the computation says. Blocks. Since 1.2. */
  template <element T>
  void to(std::span<T> out) const {
    detail::must(try_to(out));
  }
  template <std::ranges::contiguous_range R>
    requires(element<std::ranges::range_value_t<R>> && std::ranges::sized_range<R>)
  void to(R&& out) const {
    detail::must(try_to(std::span(std::ranges::data(out), std::ranges::size(out))));
  }
  /* The same into an mdspan of the tensor's own shape, dense and row-major. Since 1.2. */
  template <dense_mdspan M>
    requires(!std::is_const_v<typename M::element_type>)
  void to(const M& out) const {
    detail::must(try_to(out));
  }
  template <dense_mdspan M>
    requires(!std::is_const_v<typename M::element_type>)
  [[nodiscard]] result<void> try_to(const M& out) const;
  template <element T>
  [[nodiscard]] result<std::vector<T>> try_to_vector() const;
  /* All elements, row by row. T is the tensor's own type. Blocks. Since 1.2. */
  template <element T>
  [[nodiscard]] std::vector<T> to_vector() const {
    return detail::must(try_to_vector<T>());
  }
  template <number T = double>
  [[nodiscard]] result<T> try_item() const;
  /* The only element as a number of C++: as a double if nobody says else. An integer asks for a tensor of integers
   * or bool and must hold the value (out_of_range). Evaluates and waits. Since 1.2. */
  template <number T = double>
  [[nodiscard]] T item() const {
    return detail::must(try_item<T>());
  }
  [[nodiscard]] result<std::string> try_to_string(const print_options& options = {}) const;
  /* The values as text for people, summarised like NumPy's. Evaluates and waits. Since 1.2. */
  [[nodiscard]] std::string to_string(const print_options& options = {}) const {
    return detail::must(try_to_string(options));
  }

  [[nodiscard]] result<void> try_requires_grad(bool on = true) const {
    return result<void>(weft_tensor_require_grad(get(), on ? 1 : 0));
  }
  /* From now on gradients with respect to this tensor may be asked for, of what is recorded from it. Since 1.2. */
  const tensor& requires_grad(bool on = true) const {
    detail::must(try_requires_grad(on));
    return *this;
  }
  [[nodiscard]] result<void> try_keep() const { return result<void>(weft_tensor_keep(get())); }
  /* The value survives the next barrier although a scope owns the tensor, and can be read after it. Since 1.2. */
  const tensor& keep() const {
    detail::must(try_keep());
    return *this;
  }
  [[nodiscard]] result<void> try_assign(const tensor& value) const {
    return result<void>(weft_tensor_assign(get(), value.get()));
  }
  /* This tensor and its copies hold `value` from now on; the same dtype and shape. Gradients stop here. Since 1.2. */
  void assign(const tensor& value) const { detail::must(try_assign(value)); }
  [[nodiscard]] result<void> try_copy_from(const tensor& value) const {
    return result<void>(weft_tensor_copy_from(get(), value.get()));
  }
  /* An assignment through which gradients flow. Since 1.2. */
  void copy_from(const tensor& value) const { detail::must(try_copy_from(value)); }
  [[nodiscard]] result<tensor> try_clone() const;
  /* A second tensor of the same value, which later assignments to this one leave as it is. Costs nothing. Since 1.2. */
  [[nodiscard]] tensor clone() const { return detail::must(try_clone()); }
  [[nodiscard]] result<tensor> try_to_device(const device& to) const;
  /* The value on a device, perhaps of another context: evaluates, waits and moves the elements. Since 1.2. */
  [[nodiscard]] tensor to_device(const device& to) const { return detail::must(try_to_device(to)); }

  /* Without exceptions: the C tensor that makes all that is computed from it fail, too. */
  static tensor poisoned(weft_context* ctx, weft_tensor* raw) noexcept {
    weft_tensor_retain(raw);
    return tensor(ctx, raw, 0);
  }

 private:
  tensor(weft_context* ctx, weft_tensor* raw, int) noexcept : handle(raw), context_(ctx) {}
  [[nodiscard]] result<void> must_hold(weft::dtype wanted) const;
  weft_context* context_ = nullptr;
};

namespace detail {

/* The end of each operation: the open scope takes a reference of its own, and the caller's is the tensor's. */
inline result<tensor> made(weft_error* raw, weft_context* ctx, weft_tensor* out) {
  if (raw != nullptr) [[unlikely]] {
    return result<tensor>(raw);
  }
  tensor owned = tensor::adopt(ctx, out);
  if (current_scope.context == ctx && current_scope.scope != nullptr) {
    raw = weft_scope_share(current_scope.scope, out);
    if (raw != nullptr) return result<tensor>(raw);
  }
  return owned;
}

/* The same for many. */
inline result<std::vector<tensor>> made(weft_error* raw, weft_context* ctx, weft_tensor* const* out,
                                        std::size_t count) {
  if (raw != nullptr) return result<std::vector<tensor>>(raw);
  std::vector<tensor> all;
  all.reserve(count);
  for (std::size_t i = 0; i < count; ++i) all.push_back(tensor::adopt(ctx, out[i]));
  for (const tensor& one : all) {
    if (current_scope.context != ctx || current_scope.scope == nullptr) break;
    raw = weft_scope_share(current_scope.scope, one.get());
    if (raw != nullptr) return result<std::vector<tensor>>(raw);
  }
  return all;
}

}  // namespace detail

/* Tensors as arguments of a call: {a, b}, one tensor, or a range of them. It borrows them and is good for the call
 * alone. */
class tensor_refs {
 public:
  tensor_refs() noexcept = default;
  tensor_refs(const tensor& one) { add(one); }
  tensor_refs(const tensor* many, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) add(many[i]);
  }
  tensor_refs(std::initializer_list<tensor> many) : tensor_refs(many.begin(), many.size()) {}
  template <class R>
    requires(std::ranges::input_range<R> &&
             std::same_as<std::remove_cvref_t<std::ranges::range_reference_t<R>>, tensor>)
  tensor_refs(R&& many) {
    for (const tensor& one : many) add(one);
  }
  [[nodiscard]] weft_tensor* const* data() const noexcept { return raw_.data(); }
  [[nodiscard]] std::size_t size() const noexcept { return raw_.size(); }
  /* The context that records what they are operands of; NULL where all are empty. */
  [[nodiscard]] weft_context* context_handle() const noexcept { return context_; }

 private:
  void add(const tensor& one) {
    raw_.push(one.get());
    context_ = detail::inner(context_, one.context_handle());
  }
  detail::elements<weft_tensor*> raw_;
  weft_context* context_ = nullptr;
};

inline result<dtype> tensor::try_dtype() const {
  weft_dtype found{};
  if (weft_error* raw = weft_tensor_dtype(get(), &found)) return result<weft::dtype>(raw);
  return static_cast<weft::dtype>(found);
}

inline result<shape> tensor::try_shape() const {
  std::array<std::int64_t, 32> dims{};
  std::size_t rank = 0;
  if (weft_error* raw = weft_tensor_dims(get(), dims.data(), dims.size(), &rank)) return result<weft::shape>(raw);
  return weft::shape::of(dims.data(), rank < dims.size() ? rank : dims.size());
}

inline result<std::int64_t> tensor::try_size() const {
  std::int64_t count = 0;
  if (weft_error* raw = weft_tensor_count(get(), &count)) return result<std::int64_t>(raw);
  return count;
}

inline result<std::uint64_t> tensor::try_bytes() const {
  std::uint64_t size = 0;
  if (weft_error* raw = weft_tensor_size(get(), &size)) return result<std::uint64_t>(raw);
  return size;
}

inline result<void> tensor::must_hold(weft::dtype wanted) const {
  auto found = try_dtype();
  if (!found) return found.error();
  if (*found == wanted) return {};
  return error(code::invalid_argument, std::string("the tensor holds ") + std::string(name_of(*found)) +
                                           " and the memory is of " + std::string(name_of(wanted)) +
                                           "; weft::convert makes a tensor of another type");
}

template <element T>
result<void> tensor::try_to(std::span<T> out) const {
  static_assert(!std::is_const_v<T>, "elements are written to memory that may change");
  if (auto held = must_hold(dtype_of<T>::value); !held) return held;
  return result<void>(weft_tensor_to_host(get(), out.data(), out.size_bytes()));
}

template <element T>
result<std::vector<T>> tensor::try_to_vector() const {
  auto count = try_size();
  if (!count) return count.error();
  const auto size = static_cast<std::size_t>(*count);
  if constexpr (std::same_as<T, bool>) {  // whose vector has bits
    const detail::elements<bool> bytes(size);
    if (auto read = try_to(std::span(bytes.data(), size)); !read) return read.error();
    return std::vector<bool>(bytes.data(), bytes.data() + size);
  } else {
    std::vector<T> values(size);
    if (auto read = try_to(std::span(values)); !read) return read.error();
    return values;
  }
}

template <number T>
result<T> tensor::try_item() const {
  if constexpr (std::floating_point<T>) {
    double value = 0;
    if (weft_error* raw = weft_tensor_item_f64(get(), &value)) return result<T>(raw);
    return static_cast<T>(value);
  } else if constexpr (std::same_as<T, std::uint64_t>) {
    std::uint64_t value = 0;
    if (weft_error* raw = weft_tensor_item_u64(get(), &value)) return result<T>(raw);
    return value;
  } else {
    std::int64_t value = 0;
    if (weft_error* raw = weft_tensor_item_i64(get(), &value)) return result<T>(raw);
    bool fits = static_cast<std::int64_t>(static_cast<T>(value)) == value;
    if constexpr (std::unsigned_integral<T>) fits = fits && value >= 0;
    if (!fits)
      return error(code::out_of_range,
                   "the tensor's element is " + std::to_string(value) + ", which the integer type cannot hold");
    return static_cast<T>(value);
  }
}

inline result<std::string> tensor::try_to_string(const print_options& options) const {
  weft_print_options o{};
  o.struct_size = sizeof o;
  o.threshold = options.threshold ? *options.threshold : 0;
  o.edge_items = options.edge_items ? *options.edge_items : 0;
  o.precision = options.precision ? *options.precision : 0;
  o.line_width = options.line_width ? *options.line_width : 0;
  o.header = options.header ? 1 : 0;
  o.present = (options.threshold ? WEFT_PRINT_HAS_THRESHOLD : 0) | (options.precision ? WEFT_PRINT_HAS_PRECISION : 0) |
              (options.line_width ? WEFT_PRINT_HAS_LINE_WIDTH : 0);
  weft_blob* text = nullptr;
  weft_error* raw = weft_tensor_to_string(get(), &o, &text);
  return detail::text_of(raw, text);
}

inline result<tensor> tensor::try_clone() const {
  weft_tensor* out = nullptr;
  weft_error* raw = weft_tensor_copy(get(), &out);
  return detail::made(raw, context_, out);
}

template <dense_mdspan M>
  requires(!std::is_const_v<typename M::element_type>)
result<void> tensor::try_to(const M& out) const {
  using T = typename M::element_type;
  auto sizes = try_shape();
  if (!sizes) return sizes.error();
  bool same = sizes->size() == M::rank() && out.is_exhaustive();
  std::size_t stride = 1, count = 1;
  for (std::size_t i = M::rank(); same && i-- > 0;) {
    same = static_cast<std::size_t>(out.extent(i)) == static_cast<std::size_t>((*sizes)[i]) &&
           (out.extent(i) <= 1 || static_cast<std::size_t>(out.stride(i)) == stride);
    stride *= static_cast<std::size_t>(out.extent(i));
  }
  if (!same) return error(code::invalid_argument, "the mdspan has not the tensor's shape, dense and row-major");
  for (std::size_t i = 0; i < M::rank(); ++i) count *= static_cast<std::size_t>(out.extent(i));
  return try_to(std::span<T>(out.data_handle(), count));
}

}  // namespace throwing or returning
}  // namespace weft

#endif  // LIBWEFT_TENSOR_HPP
