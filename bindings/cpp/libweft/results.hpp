/* Lists of tensors that calls give, and how the body of a function is recorded from a lambda. */
#ifndef LIBWEFT_RESULTS_HPP
#define LIBWEFT_RESULTS_HPP

#include <tuple>
#include "numbers.hpp"

namespace weft {
#if defined(__cpp_exceptions)
inline namespace throwing {
#else
inline namespace returning {
#endif

/* The results of a call whose number the program decides: a vector of tensors, which is a tensor where there is
 * exactly one:
 *   weft::tensor y = f(x);
 * Since 1.2. */
class tensors : public std::vector<tensor> {
 public:
  using vector::vector;
  tensors() = default;
  tensors(std::vector<tensor> all) noexcept : vector(std::move(all)) {}
  /* The only one. Errors: failed_precondition where there are none or several. Since 1.2. */
  [[nodiscard]] result<tensor> try_one() const {
    if (size() == 1) return front();
    return error(code::failed_precondition, "there are " + std::to_string(size()) + " results where one is asked for");
  }
  [[nodiscard]] tensor one() const { return detail::must(try_one()); }
  operator tensor() const { return one(); }
};

namespace detail {

inline result<tensors> made_tensors(weft_error* raw, weft_context* ctx, weft_tensor* const* out, std::size_t count) {
  auto all = made(raw, ctx, out, count);
  if (!all) return all.error();
  return tensors(*std::move(all));
}

/* The tensor at a place; an empty one where a failure left none, which only programs without exceptions see. */
inline tensor take(tensors& all, std::size_t at) { return at < all.size() ? std::move(all[at]) : tensor(); }

template <class R>
concept tuple_of_tensors = requires { std::tuple_size<R>::value; };

/* The results of a lambda as one list of C tensors; the lambda's own objects keep them. */
template <class R>
void flatten(const R& value, elements<weft_tensor*>& out) {
  if constexpr (std::same_as<R, tensor>) {
    out.push(value.get());
  } else if constexpr (tuple_of_tensors<R>) {
    std::apply([&](const auto&... each) { (flatten(each, out), ...); }, value);
  } else {
    for (const tensor& each : value) out.push(each.get());
  }
}

/* Results in the form in which the lambda returned its own. */
template <class R>
R mirrored(tensors all) {
  if constexpr (std::same_as<R, tensor>) {
    return take(all, 0);
  } else if constexpr (tuple_of_tensors<R>) {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return R{take(all, I)...};
    }(std::make_index_sequence<std::tuple_size_v<R>>());
  } else {
    return R(all.begin(), all.end());
  }
}

/* Calls f with N tensors, after the body's context where it takes one. */
template <class F, std::size_t... I>
decltype(auto) call_body(F& f, const context& body, std::span<const tensor> x, std::index_sequence<I...>) {
  if constexpr (std::invocable<F&, const context&, decltype(x[I])...>) {
    return f(body, x[I]...);
  } else {
    static_assert(std::invocable<F&, decltype(x[I])...>, "the function does not take as many tensors as it is given");
    return f(x[I]...);
  }
}
template <class F, std::size_t N>
using traced_t =
    std::remove_cvref_t<decltype(call_body(std::declval<std::remove_reference_t<F>&>(), std::declval<const context&>(),
                                           std::declval<std::span<const tensor>>(), std::make_index_sequence<N>()))>;

/* Puts the thread's scope aside while a body is recorded: what is recorded there belongs to the body. */
class scope_aside {
 public:
  scope_aside() noexcept : before_(std::exchange(current_scope, {})) {}
  scope_aside(const scope_aside&) = delete;
  scope_aside& operator=(const scope_aside&) = delete;
  ~scope_aside() { current_scope = before_; }

 private:
  open_scope before_;
};

/* Says while it lives that this thread records a body. */
class body_open {
 public:
  explicit body_open(weft_context* ctx) noexcept : link_{ctx, current_body} { current_body = &link_; }
  body_open(const body_open&) = delete;
  body_open& operator=(const body_open&) = delete;
  ~body_open() { current_body = link_.around; }

 private:
  open_body link_;
};

/* Records f in the body that has begun, and ends it. */
template <std::size_t N, class F>
weft_error* record_in(const context& body, std::span<const tensor> parameters, F& f, weft_function** out) {
  const scope_aside aside;
  const body_open recorded(body.get());
#if !defined(__cpp_exceptions)
  scope failures(body);  // the first failure of the body's operations is the body's
#endif
  const auto value = call_body(f, body, parameters, std::make_index_sequence<N>());
  elements<weft_tensor*> results;
  flatten(value, results);
#if !defined(__cpp_exceptions)
  if (auto ended = failures.try_end(); !ended) return ended.take_error();
#endif
  return weft_function_end(body.get(), results.data(), results.size(), out);
}

/* A function of inputs of these types from a lambda. A weft::error that the lambda throws is the failure; what else
 * it throws passes through, and the body is abandoned. */
template <std::size_t N, class F>
weft_error* record(weft_context* ctx, std::span<const tensor_type, N> inputs, F& f, std::string_view name,
                   weft_function** out) {
  std::array<weft_tensor_info, N + 1> infos{};
  std::array<weft_tensor*, N + 1> raw{};
  for (std::size_t i = 0; i < N; ++i) infos[i] = detail::raw(inputs[i]);
  weft_context* begun = nullptr;
  if (weft_error* failed = weft_function_begin(ctx, name.data(), name.size(), infos.data(), N, &begun, raw.data()))
    return failed;
  const context body = context::adopt(begun);
  std::array<tensor, N + 1> parameters;
  for (std::size_t i = 0; i < N; ++i) parameters[i] = tensor::adopt(begun, raw[i]);
  const std::span<const tensor> taken(parameters.data(), N);
#if defined(__cpp_exceptions)
  try {
    return record_in<N>(body, taken, f, out);
  } catch (error& failed) {
    return failed.release();
  }
#else
  return record_in<N>(body, taken, f, out);
#endif
}

template <class T>
void keep_all(const T& value) {
  if constexpr (std::same_as<T, tensor>) {
    value.keep();
  } else if constexpr (tuple_of_tensors<T>) {
    std::apply([](const auto&... each) { (keep_all(each), ...); }, value);
  } else {
    for (const tensor& each : value) each.keep();
  }
}

}  // namespace detail

/* The result of f, or its failure as a value: the try_ twin of what takes lambdas, weft::try_call([&] { return
 * weft::scan(cell, {h}, {xs}); }). With exceptions it is the weft::error that f throws, without them the first
 * failure of f's calls outside of scopes of its own; other exceptions pass through. Since 1.2. */
template <class F>
[[nodiscard]] auto try_call(F&& f) -> result<std::invoke_result_t<F>> {
  using R = std::invoke_result_t<F>;
#if defined(__cpp_exceptions)
  try {
    if constexpr (std::is_void_v<R>) {
      std::forward<F>(f)();
      return {};
    } else {
      return std::forward<F>(f)();
    }
  } catch (error& failed) {
    return failed;
  }
#else
  weft_error* const before = std::exchange(detail::unread.raw, nullptr);
  const auto failure = [before] { return std::exchange(detail::unread.raw, before); };
  const detail::scope_aside aside;
  if constexpr (std::is_void_v<R>) {
    std::forward<F>(f)();
    return result<R>(failure());
  } else {
    R value = std::forward<F>(f)();
    if (weft_error* raw = failure()) return result<R>(raw);
    return value;
  }
#endif
}

template <class F>
auto context::step(F&& f) const -> std::invoke_result_t<F> {
  scope recorded(*this);
  if constexpr (std::is_void_v<std::invoke_result_t<F>>) {
    std::forward<F>(f)();
    recorded.end();
    sync();
  } else {
    auto value = std::forward<F>(f)();
    detail::keep_all(value);
    recorded.end();
    sync();
    return value;
  }
}

}  // namespace throwing or returning
}  // namespace weft

#endif  // LIBWEFT_RESULTS_HPP
