/* Operations of one's own for libweft.hpp: lambdas and C functions that programs call. */
#ifndef LIBWEFT_CUSTOM_HPP
#define LIBWEFT_CUSTOM_HPP

#include <atomic>
#include "function.hpp"

namespace weft {
#if defined(__cpp_exceptions)
inline namespace throwing {
#else
inline namespace returning {
#endif

/* How a custom operation may be called. */
struct custom_options {
  bool many_threads = false; /* from several threads at once; else one call at a time in the whole process */
  bool buffers = false;      /* of a C function alone: it takes whole tensors; of lambdas their parameters say so */
};

/* An operation that weft::custom made: it is called with tensors, in programs and in bodies. Any thread. Since 1.2. */
class operation {
 public:
  operation() = default;
  operation(weft_context* ctx, std::string_view name) : context_(ctx), name_(name) {}

  [[nodiscard]] result<tensors> try_call(const tensor_refs& inputs) const {
    std::array<weft_tensor*, 32> out{};
    std::size_t count = 0;
    weft_context* const context = inputs.context_handle() != nullptr ? inputs.context_handle() : context_;
    weft_error* raw = weft_custom_apply(context, name_.data(), name_.size(), inputs.data(), inputs.size(), out.data(),
                                        out.size(), &count);
    return detail::made_tensors(raw, context, out.data(), raw == nullptr ? count : 0);
  }
  /* Records the operation; dtypes are not converted. Errors: invalid_argument quotes the signature. Since 1.2. */
  template <class... X>
    requires(std::convertible_to<const X&, tensor> && ...)
  [[nodiscard]] tensors operator()(const X&... x) const {
    return detail::must(try_call(std::initializer_list<tensor>{x...}));
  }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 private:
  weft_context* context_ = nullptr;
  std::string name_;
};

namespace detail {

/* How signatures spell an element type; empty where they have no word for it. */
template <class T>
constexpr std::string_view c_name() {
  constexpr dtype type = dtype_of<std::remove_cv_t<T>>::value;
  constexpr std::array<std::pair<dtype, std::string_view>, 13> names = {{{i8, "int8_t"},
                                                                         {i16, "int16_t"},
                                                                         {i32, "int32_t"},
                                                                         {i64, "int64_t"},
                                                                         {u8, "uint8_t"},
                                                                         {u16, "uint16_t"},
                                                                         {u32, "uint32_t"},
                                                                         {u64, "uint64_t"},
                                                                         {f32, "float"},
                                                                         {f64, "double"},
                                                                         {boolean, "bool"},
                                                                         {f16, "f16"},
                                                                         {bf16, "bf16"}}};
  for (const auto& [number, name] : names) {
    if (number == type) return name;
  }
  return {};
}

/* A parameter of a lambda as the operation has it: T is an element that goes in, T& one that comes out,
 * std::span<const T> a tensor that goes in and std::span<T> one that comes out. */
template <class A>
struct parameter {
  using type = std::remove_cvref_t<A>;
  static constexpr bool buffer = false,
                        out = std::is_lvalue_reference_v<A> && !std::is_const_v<std::remove_reference_t<A>>;
  static_assert(element<type>, "a custom operation takes elements or spans of elements");
  static std::string text() { return std::string(c_name<type>()) + (out ? "*" : ""); }
};
template <class T>
struct parameter<std::span<T>> {
  using type = std::remove_cv_t<T>;
  static constexpr bool buffer = true, out = !std::is_const_v<T>;
  static std::string text() { return std::string(out ? "" : "const ") + std::string(c_name<T>()) + "*[n...]"; }
};

/* Lambdas of one type that are in use: a program calls one by its number, which is part of its signature, so that no
 * address is. */
template <class F>
struct slots {
  static constexpr std::size_t most = 64;
  static inline std::array<std::atomic<F*>, most> table{};
  static std::size_t take(F* f) noexcept {
    for (std::size_t i = 0; i < most; ++i) {
      F* none = nullptr;
      if (table[i].compare_exchange_strong(none, f)) return i;
    }
    return most;
  }
};

/* The exception of a lambda, or its own weft::result<void>, as the outcome of the program that called it. */
template <class Call>
weft_error* guarded(Call&& call) noexcept {
#if defined(__cpp_exceptions)
  try {
#endif
    if constexpr (std::same_as<std::invoke_result_t<Call>, result<void>>) {
      return call().take_error();
    } else {
      call();
      return nullptr;
    }
#if defined(__cpp_exceptions)
  } catch (error& failed) {
    return failed.release();
  } catch (const std::exception& failed) {
    return weft_error_new(WEFT_UNKNOWN, failed.what(), WEFT_STRLEN);
  } catch (...) {
    return weft_error_new(WEFT_UNKNOWN, "the function threw what is no std::exception", WEFT_STRLEN);
  }
#endif
}

template <class... T>
struct type_list {};

/* The C function of a lambda: its arguments are those of the lambda as C has them, then the tail: where the result
 * goes, or how many elements all spans have. */
template <class F, class R, class Arguments, class Tail>
struct thunk;
template <class F, class R, class... A, class... Tail>
struct thunk<F, R, type_list<A...>, type_list<Tail...>> {
  static constexpr bool buffers = (parameter<A>::buffer || ...), gives = sizeof...(Tail) == 1 && !buffers;
  static_assert(!buffers || (parameter<A>::buffer && ...), "a custom operation takes elements or spans, not both");
  template <class X>
  using c_type =
      std::conditional_t<parameter<X>::out, typename parameter<X>::type*,
                         std::conditional_t<buffers, const typename parameter<X>::type*, typename parameter<X>::type>>;
  template <class X>
  static decltype(auto) argument_of(c_type<X> value, std::size_t count) {
    if constexpr (buffers) {
      return X(value, count);
    } else if constexpr (parameter<X>::out) {
      return static_cast<typename parameter<X>::type&>(*value);
    } else {
      return static_cast<typename parameter<X>::type>(value);
    }
  }
  static weft_error* run(F& f, c_type<A>... values, Tail... tail) {
    using Returns = std::conditional_t<std::same_as<R, result<void>>, R, void>;
    return guarded([&]() -> Returns {
      if constexpr (buffers) {
        return static_cast<Returns>(f(argument_of<A>(values, tail...)...));
      } else if constexpr (gives) {
        (*tail, ...) = f(argument_of<A>(values, 0)...);
      } else {
        return static_cast<Returns>(f(argument_of<A>(values, 0)...));
      }
    });
  }
  static weft_error* numbered(std::size_t slot, c_type<A>... values, Tail... tail) {
    return run(*slots<F>::table[slot].load(), values..., tail...);
  }
  static weft_error* plain(c_type<A>... values, Tail... tail) {
    F f{};
    return run(f, values..., tail...);
  }
  static std::string signature(std::string all) {
    ((all += parameter<A>::text() + ", "), ...);
    if constexpr (gives) {
      all += std::string(c_name<R>()) + "*)";
    } else if constexpr (buffers) {
      all += "size_t=n)";
    } else {
      all.replace(all.size() - 2, 2, ")");
    }
    return all;
  }
  static constexpr std::size_t operands = (std::size_t{0} + ... + (parameter<A>::out ? 0 : 1));
  template <class X>
  static constexpr bool passes_gradient = float_element<X> || complex_element<X>;
  static constexpr std::size_t results = sizeof...(A) - operands + (gives ? 1 : 0);
  static constexpr std::size_t cotangents = [] {
    std::size_t count =
        (std::size_t{0} + ... + (parameter<A>::out && passes_gradient<typename parameter<A>::type> ? 1 : 0));
    if constexpr (gives) count += passes_gradient<R> ? 1 : 0;
    return count;
  }();
};

/* A lambda's parameters, its result and so its C function. */
template <class F, class Call>
struct thunk_from;
template <class F, class R, class... A>
struct thunk_from<F, R(A...)> {
  static constexpr bool buffers = (parameter<A>::buffer || ...);
  static constexpr bool gives = !std::is_void_v<R> && !std::same_as<R, result<void>>;
  using tail = std::conditional_t<buffers, type_list<std::size_t>,
                                  std::conditional_t<gives, type_list<std::add_pointer_t<R>>, type_list<>>>;
  using type = thunk<F, R, type_list<A...>, tail>;
};
template <class F, class Call>
struct call_of;
template <class F, class R, class C, class... A>
struct call_of<F, R (C::*)(A...)> : thunk_from<F, R(A...)> {};
template <class F, class R, class C, class... A>
struct call_of<F, R (C::*)(A...) const> : thunk_from<F, R(A...)> {};
template <class F, class R, class C, class... A>
struct call_of<F, R (C::*)(A...) noexcept> : thunk_from<F, R(A...)> {};
template <class F, class R, class C, class... A>
struct call_of<F, R (C::*)(A...) const noexcept> : thunk_from<F, R(A...)> {};

/* Things that a registration owns: the lambda, in its slot, and the one that records the gradient. */
template <class F, class G>
struct registration {
  F f;
  G gradient;
  std::size_t slot = slots<F>::most;

  static void release(void* user) noexcept {
    auto* const self = static_cast<registration*>(user);
    if (self->slot < slots<F>::most) slots<F>::table[self->slot].store(nullptr);
    delete self;
  }
  template <std::size_t N>
  static weft_error* trace(void* user, weft_context* raw_body, weft_tensor* const* raw, std::size_t count,
                           weft_tensor** out, std::size_t capacity, std::size_t* out_count) {
    if (count != N)
      return weft_error_new(WEFT_INTERNAL, "the gradient of a custom operation got another number of tensors",
                            WEFT_STRLEN);
    weft_error* failed = nullptr;
    weft_error* const thrown = guarded([&] {
      weft_context_retain(raw_body);
      const context body = context::adopt(raw_body);
      std::array<tensor, N + 1> x;
      for (std::size_t i = 0; i < N; ++i) {
        weft_tensor_retain(raw[i]);
        x[i] = tensor::adopt(raw_body, raw[i]);
      }
      const scope_aside aside;
      const body_open recorded(raw_body);
      const auto value = call_body(static_cast<registration*>(user)->gradient, body,
                                   std::span<const tensor>(x.data(), N), std::make_index_sequence<N>());
      elements<weft_tensor*> all;
      flatten(value, all);
      *out_count = all.size();
      if (all.size() > capacity) {
        failed = weft_error_new(WEFT_INVALID_ARGUMENT, "the gradient gives more tensors than there are operands",
                                WEFT_STRLEN);
        return;
      }
      for (std::size_t i = 0; i < all.size(); ++i) weft_tensor_retain(out[i] = all.data()[i]);
    });
    return thrown != nullptr ? thrown : failed;
  }
};

struct no_gradient {};

}  // namespace detail

template <class F, class G = detail::no_gradient>
  requires requires { &F::operator(); }
[[nodiscard]] result<operation> try_custom(const context& ctx, std::string_view name, F f,
                                           const custom_options& options = {}, G gradient = {}) {
  using thunk = typename detail::call_of<F, decltype(&F::operator())>::type;
  using registration = detail::registration<F, G>;
  auto* const held = new registration{std::move(f), std::move(gradient)};
  weft_custom_options o{};
  o.struct_size = sizeof o;
  o.kind = thunk::buffers ? WEFT_CUSTOM_BUFFERS : WEFT_CUSTOM_ELEMENTS;
  o.threads = options.many_threads ? WEFT_CUSTOM_MANY_THREADS : WEFT_CUSTOM_ONE_THREAD;
  o.user_data = held;
  o.release = registration::release;
  if constexpr (!std::same_as<G, detail::no_gradient>) {
    o.gradient_trace = registration::template trace<thunk::operands + thunk::results + thunk::cotangents>;
  }
  std::string signature = "weft_error*(";
  void* address = nullptr;
  if constexpr (std::is_empty_v<F> && std::is_default_constructible_v<F>) {
    address = reinterpret_cast<void*>(&thunk::plain);
  } else {
    held->slot = detail::slots<F>::take(&held->f);
    if (held->slot == detail::slots<F>::most) {
      delete held;
      return error(code::resource_exhausted,
                   "64 custom operations of one lambda that captures are in use; there is room for no more");
    }
    address = reinterpret_cast<void*>(&thunk::numbered);
    signature += "size_t=" + std::to_string(held->slot) + ", ";
  }
  signature = thunk::signature(std::move(signature));
  weft_error* raw =
      weft_custom_register(ctx.get(), name.data(), name.size(), address, signature.data(), signature.size(), &o);
  if (raw != nullptr) return result<operation>(raw);  // release has run
  return operation(ctx.get(), name);
}
/* Makes a lambda an operation of the context, under a name that programs know it by. Of elements, [](double x,
 * double y) { return x + y; }, it is called for each; its operands are broadcast. Of spans, [](std::span<const
 * float> x, std::span<float> y) {}, it is called once with whole tensors of one shape. It runs on a thread of
 * Weft's; what it throws is the outcome of the program. `gradient` records, from operands, results and cotangents of
 * float results, the cotangents of float operands. What the lambdas capture lives as long as the context and its
 * programs. Errors: already_exists, … Any thread. Since 1.2. */
template <class F, class G = detail::no_gradient>
  requires requires { &F::operator(); }
operation custom(const context& ctx, std::string_view name, F f, const custom_options& options = {}, G gradient = {}) {
  return detail::must(try_custom(ctx, name, std::move(f), options, std::move(gradient)));
}

[[nodiscard]] inline result<operation> try_custom_symbol(const context& ctx, std::string_view name,
                                                         std::string_view library, std::string_view symbol,
                                                         std::string_view signature,
                                                         const custom_options& options = {}) {
  weft_custom_options o{};
  o.struct_size = sizeof o;
  o.kind = options.buffers ? WEFT_CUSTOM_BUFFERS : WEFT_CUSTOM_ELEMENTS;
  o.threads = options.many_threads ? WEFT_CUSTOM_MANY_THREADS : WEFT_CUSTOM_ONE_THREAD;
  weft_error* raw =
      weft_custom_register_symbol(ctx.get(), name.data(), name.size(), library.empty() ? nullptr : library.data(),
                                  library.size(), symbol.data(), symbol.size(), signature.data(), signature.size(), &o);
  if (raw != nullptr) return result<operation>(raw);
  return operation(ctx.get(), name);
}
/* The same of a C function in a shared library, by its prototype: weft::custom_symbol(ctx, "lgamma", "libm.so.6",
 * "lgamma_r", "double(double, int*)"). An empty library is what is loaded already. Since 1.2. */
inline operation custom_symbol(const context& ctx, std::string_view name, std::string_view library,
                               std::string_view symbol, std::string_view signature,
                               const custom_options& options = {}) {
  return detail::must(try_custom_symbol(ctx, name, library, symbol, signature, options));
}

}  // namespace throwing or returning
}  // namespace weft

#endif  // LIBWEFT_CUSTOM_HPP
