/* Element types, lists and options of libweft.hpp: what calls take beside tensors. */
#ifndef LIBWEFT_TYPES_HPP
#define LIBWEFT_TYPES_HPP

#include <array>
#include <bit>
#include <concepts>
#include <initializer_list>
#include <ranges>
#include <span>
#include <vector>

#include "error.hpp"

namespace weft {
#if defined(__cpp_exceptions)
inline namespace throwing {
#else
inline namespace returning {
#endif

/* Element types of tensors, in DLPack's numbers. weft::f32 is short for weft::dtype::f32. Since 1.2. */
enum class dtype : std::uint32_t {
  i2 = WEFT_I2,
  i4 = WEFT_I4,
  i8 = WEFT_I8,
  i16 = WEFT_I16,
  i32 = WEFT_I32,
  i64 = WEFT_I64,
  u2 = WEFT_U2,
  u4 = WEFT_U4,
  u8 = WEFT_U8,
  u16 = WEFT_U16,
  u32 = WEFT_U32,
  u64 = WEFT_U64,
  f16 = WEFT_F16,
  f32 = WEFT_F32,
  f64 = WEFT_F64,
  bf16 = WEFT_BF16,
  c64 = WEFT_C64,
  c128 = WEFT_C128,
  boolean = WEFT_BOOL,
  f8e3m4 = WEFT_F8E3M4,
  f8e4m3 = WEFT_F8E4M3,
  f8e4m3b11fnuz = WEFT_F8E4M3B11FNUZ,
  f8e4m3fn = WEFT_F8E4M3FN,
  f8e4m3fnuz = WEFT_F8E4M3FNUZ,
  f8e5m2 = WEFT_F8E5M2,
  f8e5m2fnuz = WEFT_F8E5M2FNUZ,
  f8e8m0fnu = WEFT_F8E8M0FNU,
};
using enum dtype;

/* The name of an element type as texts spell it: "f32", "bool". Since 1.2. */
[[nodiscard]] constexpr std::string_view name_of(dtype type) noexcept {
  struct named {
    dtype number;
    const char* name;
  };
  constexpr named names[] = {{i2, "i2"},
                             {i4, "i4"},
                             {i8, "i8"},
                             {i16, "i16"},
                             {i32, "i32"},
                             {i64, "i64"},
                             {u2, "u2"},
                             {u4, "u4"},
                             {u8, "u8"},
                             {u16, "u16"},
                             {u32, "u32"},
                             {u64, "u64"},
                             {f16, "f16"},
                             {f32, "f32"},
                             {f64, "f64"},
                             {bf16, "bf16"},
                             {c64, "c64"},
                             {c128, "c128"},
                             {boolean, "bool"},
                             {f8e3m4, "f8e3m4"},
                             {f8e4m3, "f8e4m3"},
                             {f8e4m3b11fnuz, "f8e4m3b11fnuz"},
                             {f8e4m3fn, "f8e4m3fn"},
                             {f8e4m3fnuz, "f8e4m3fnuz"},
                             {f8e5m2, "f8e5m2"},
                             {f8e5m2fnuz, "f8e5m2fnuz"},
                             {f8e8m0fnu, "f8e8m0fnu"}};
  for (const named& one : names) {
    if (one.number == type) return one.name;
  }
  return "unknown";
}

/* bfloat16: the upper half of a float. Conversion rounds to nearest even; a NaN stays one. Since 1.2. */
struct bfloat16 {
  std::uint16_t bits = 0;

  constexpr bfloat16() noexcept = default;
  constexpr explicit bfloat16(float value) noexcept {
    const auto wide = std::bit_cast<std::uint32_t>(value);
    if ((wide & 0x7FFFFFFFu) > 0x7F800000u) {
      bits = static_cast<std::uint16_t>((wide >> 16) | 0x40u);
    } else {
      bits = static_cast<std::uint16_t>((wide + 0x7FFFu + ((wide >> 16) & 1u)) >> 16);
    }
  }
  constexpr explicit operator float() const noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
  friend constexpr bool operator==(bfloat16, bfloat16) noexcept = default;
};

/* IEEE half precision. Conversion rounds to nearest even; a NaN stays one. Since 1.2. */
struct float16 {
  std::uint16_t bits = 0;

  constexpr float16() noexcept = default;
  constexpr explicit float16(float value) noexcept {
    const auto wide = std::bit_cast<std::uint32_t>(value);
    const auto sign = static_cast<std::uint16_t>((wide >> 16) & 0x8000u);
    const std::uint32_t magnitude = wide & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u) {
      bits = static_cast<std::uint16_t>(sign | 0x7E00u);
    } else if (magnitude >= 0x477FF000u) {  // rounds to what is past the largest half
      bits = static_cast<std::uint16_t>(sign | 0x7C00u);
    } else if (magnitude <
               0x38800000u) {  // below the smallest normal half: a multiple of 2^-24, rounded by the float unit
      const float sum = std::bit_cast<float>(magnitude) + 0.5f;
      bits = static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(sum) - 0x3F000000u));
    } else {
      const std::uint32_t rounded = magnitude + 0xFFFu + ((magnitude >> 13) & 1u) - 0x38000000u;
      bits = static_cast<std::uint16_t>(sign | (rounded >> 13));
    }
  }
  constexpr explicit operator float() const noexcept {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
    const std::uint32_t magnitude = bits & 0x7FFFu;
    if (magnitude >= 0x7C00u) return std::bit_cast<float>(sign | 0x7F800000u | ((magnitude & 0x3FFu) << 13));
    if (magnitude >= 0x400u) return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000u));
    const float small = static_cast<float>(magnitude) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(small));
  }
  friend constexpr bool operator==(float16, float16) noexcept = default;
};

/* The element type that a C++ type has; other types have none and are no weft::element. One's own half types are
 * added by a specialisation. Since 1.2. */
template <class T>
struct dtype_of {};
template <dtype Type>
struct dtype_is {
  static constexpr dtype value = Type;
};
template <>
struct dtype_of<bool> : dtype_is<boolean> {};
template <>
struct dtype_of<float> : dtype_is<f32> {};
template <>
struct dtype_of<double> : dtype_is<f64> {};
template <>
struct dtype_of<bfloat16> : dtype_is<bf16> {};
template <>
struct dtype_of<float16> : dtype_is<f16> {};
/* Integers by size and sign, whatever they are called; char and wide characters are text and no numbers. */
template <class T>
  requires(std::integral<T> && !std::same_as<T, bool> && !std::same_as<T, char> && !std::same_as<T, wchar_t> &&
           !std::same_as<T, char8_t> && !std::same_as<T, char16_t> && !std::same_as<T, char32_t> && sizeof(T) <= 8)
struct dtype_of<T> : dtype_is<std::signed_integral<T> ? (sizeof(T) == 1   ? i8
                                                         : sizeof(T) == 2 ? i16
                                                         : sizeof(T) == 4 ? i32
                                                                          : i64)
                                                      : (sizeof(T) == 1   ? u8
                                                         : sizeof(T) == 2 ? u16
                                                         : sizeof(T) == 4 ? u32
                                                                          : u64)> {};
/* std::complex and what is like it: two floats or doubles. Its header need not be included for that. */
template <class T>
  requires(std::is_class_v<T> && std::is_trivially_copyable_v<T> &&
           requires(T z) {
             typename T::value_type;
             { z.real() } -> std::convertible_to<typename T::value_type>;
             { z.imag() } -> std::convertible_to<typename T::value_type>;
           } && std::floating_point<typename T::value_type> && sizeof(T) == 2 * sizeof(typename T::value_type) &&
           sizeof(T) <= 16)
struct dtype_of<T> : dtype_is<sizeof(T) == 8 ? c64 : c128> {};

/* Types of C++ that elements of tensors have in host memory. Since 1.2. */
template <class T>
concept element = requires {
  { dtype_of<std::remove_cv_t<T>>::value } -> std::convertible_to<dtype>;
};
/* Those of them that are floats, integers, complex. Since 1.2. */
template <class T>
concept float_element =
    element<T> && (dtype_of<std::remove_cv_t<T>>::value == f16 || dtype_of<std::remove_cv_t<T>>::value == bf16 ||
                   dtype_of<std::remove_cv_t<T>>::value == f32 || dtype_of<std::remove_cv_t<T>>::value == f64);
template <class T>
concept integer_element = element<T> && std::integral<T> && !std::same_as<std::remove_cv_t<T>, bool>;
template <class T>
concept complex_element =
    element<T> && (dtype_of<std::remove_cv_t<T>>::value == c64 || dtype_of<std::remove_cv_t<T>>::value == c128);
/* Ranges of elements. Since 1.2. */
template <class R>
concept element_range = std::ranges::input_range<R> && element<std::ranges::range_value_t<R>>;
/* A number beside a tensor in a formula. Since 1.2. */
template <class T>
concept number = std::integral<T> || std::floating_point<T>;
/* std::mdspan and what is like it, of elements that lie dense and row-major. Since 1.2. */
template <class M>
concept dense_mdspan = element<typename M::element_type> && requires(const M& m) {
  typename M::extents_type;
  { m.data_handle() } -> std::convertible_to<const typename M::element_type*>;
  { m.is_exhaustive() } -> std::convertible_to<bool>;
  { m.extent(0) } -> std::convertible_to<std::size_t>;
  { M::rank() } -> std::convertible_to<std::size_t>;
};

/* A list of numbers that a call takes: shapes, axes, paddings. It is written {2, 3}, or made of any range; a short
 * one lies in the object itself. It owns its numbers, so that options may be kept. A list that nothing was written
 * to is not given: {} as an option is its default, and weft::ints(std::vector<int>()) is an empty list that counts.
 * Since 1.2. */
template <class T>
class list {
 public:
  list() noexcept = default;
  template <number... Numbers>
    requires(sizeof...(Numbers) > 0)
  list(Numbers... numbers) {
    given_ = true;
    T* at = room(sizeof...(Numbers));
    ((*at++ = static_cast<T>(numbers)), ...);
  }
  template <class R>
    requires(std::ranges::forward_range<R> && number<std::ranges::range_value_t<R>> &&
             !std::same_as<std::remove_cvref_t<R>, list>)
  list(R&& range) {
    given_ = true;
    T* at = room(static_cast<std::size_t>(std::ranges::distance(range)));
    for (const auto& number : range) *at++ = static_cast<T>(number);
  }

  /* A list of `size` numbers that lie at `at`. Since 1.2. */
  [[nodiscard]] static list of(const T* at, std::size_t size) {
    list all;
    all.given_ = true;
    T* to = all.room(size);
    for (std::size_t i = 0; i < size; ++i) to[i] = at[i];
    return all;
  }

  [[nodiscard]] const T* data() const noexcept { return size_ <= kept ? few_.data() : many_.data(); }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] const T* begin() const noexcept { return data(); }
  [[nodiscard]] const T* end() const noexcept { return data() + size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  /* False for a list that nothing was written to. Since 1.2. */
  [[nodiscard]] bool given() const noexcept { return given_; }
  [[nodiscard]] const T& operator[](std::size_t at) const noexcept { return data()[at]; }
  friend bool operator==(const list& a, const list& b) noexcept {
    bool same = a.size() == b.size();
    for (std::size_t i = 0; same && i < a.size(); ++i) same = a[i] == b[i];
    return same;
  }

 private:
  static constexpr std::size_t kept = 8;
  T* room(std::size_t size) {
    size_ = size;
    if (size <= kept) return few_.data();
    many_.resize(size);
    return many_.data();
  }
  std::array<T, kept> few_{};
  std::vector<T> many_;
  std::size_t size_ = 0;
  bool given_ = false;
};
/* A value that is given or not, as an option has it: .axis = 1. Since 1.2. */
template <class T>
class maybe {
 public:
  constexpr maybe() noexcept = default;
  constexpr maybe(T value) noexcept : value_(value), given_(true) {}
  /* True where a value was given, which * then reads. */
  [[nodiscard]] constexpr explicit operator bool() const noexcept { return given_; }
  [[nodiscard]] constexpr const T& operator*() const noexcept { return value_; }

 private:
  T value_{};
  bool given_ = false;
};
/* The same of a text, which it owns. Since 1.2. */
class maybe_text {
 public:
  maybe_text() = default;
  maybe_text(const char* text) : text_(text), given_(true) {}
  maybe_text(std::string_view text) : text_(text), given_(true) {}
  maybe_text(std::string text) : text_(std::move(text)), given_(true) {}
  [[nodiscard]] explicit operator bool() const noexcept { return given_; }
  [[nodiscard]] std::string_view operator*() const noexcept { return text_; }

 private:
  std::string text_;
  bool given_ = false;
};
/* A name and a value as text. Since 1.2. */
struct setting {
  std::string name, value;
};
using ints = list<std::int64_t>;
using doubles = list<double>;
/* The sizes of a tensor's dimensions, the last one varying fastest; {} is a scalar's. Since 1.2. */
using shape = ints;

/* The dtype and shape of a tensor: what a function's inputs are declared with. Since 1.2. */
struct tensor_type {
  weft::dtype dtype = f32;
  weft::shape shape = {};

  friend bool operator==(const tensor_type&, const tensor_type&) noexcept = default;
};

namespace detail {

inline weft_dtype raw(dtype type) noexcept { return static_cast<weft_dtype>(type); }

/* A tensor's type as the C interface has it, and back; a rank past 32 is refused by whoever gets it. */
inline weft_tensor_info raw(const tensor_type& type) noexcept {
  weft_tensor_info info{};
  info.dtype = raw(type.dtype);
  info.rank = static_cast<std::uint32_t>(type.shape.size());
  for (std::size_t i = 0; i < type.shape.size() && i < 32; ++i) info.dims[i] = type.shape[i];
  return info;
}
inline tensor_type type_of(const weft_tensor_info& info) {
  return {static_cast<dtype>(info.dtype), shape::of(info.dims, info.rank < 32 ? info.rank : 32)};
}

/* Elements that grow in number; std::vector of bool has none that lie in memory. */
template <class T>
class elements {
 public:
  elements() noexcept = default;
  explicit elements(std::size_t count) : data_(new T[count]()), size_(count) {}
  elements(const elements&) = delete;
  elements& operator=(const elements&) = delete;
  ~elements() { delete[] data_; }
  void push(T value) {
    if (size_ == room_) {
      room_ = room_ == 0 ? 16 : 2 * room_;
      T* const larger = new T[room_]();
      for (std::size_t i = 0; i < size_; ++i) larger[i] = data_[i];
      delete[] data_;
      data_ = larger;
    }
    data_[size_++] = value;
  }
  [[nodiscard]] T* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0, room_ = 0;
};

/* Elements as they lie in memory; `copy` holds them where the range is not contiguous or of bools that are bits. */
template <class R>
using range_element = std::remove_cv_t<std::ranges::range_value_t<R>>;
template <class R>
struct dense {
  static constexpr bool in_place = std::ranges::contiguous_range<R> && std::ranges::sized_range<R>;
  using value = range_element<R>;
  explicit dense(R& range) {
    if constexpr (in_place) {
      data = std::ranges::data(range);
      count = std::ranges::size(range);
    } else {
      for (auto&& item : range) copy.push(static_cast<value>(item));
      data = copy.data();
      count = copy.size();
    }
  }
  elements<value> copy;
  const value* data = nullptr;
  std::size_t count = 0;
};

}  // namespace detail
}  // namespace throwing or returning
}  // namespace weft

#endif  // LIBWEFT_TYPES_HPP
