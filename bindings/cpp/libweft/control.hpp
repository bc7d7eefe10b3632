/* Loops and branches of libweft.hpp: scan, while_loop, for_loop, cond, switch_case, of lambdas. */
#ifndef LIBWEFT_CONTROL_HPP
#define LIBWEFT_CONTROL_HPP

#include "function.hpp"

namespace weft {
#if defined(__cpp_exceptions)
inline namespace throwing {
#else
inline namespace returning {
#endif

/* Options of scan. */
struct scan_options {
  std::int64_t length = 0; /* how often the body runs, where nothing is scanned that says so */
  std::int64_t unroll = 0; /* so many runs of the body in one of the loop; 0 is 1 */
  bool reverse = false;    /* from the last index to the first */
  std::int64_t keep_every =
      0; /* for the gradient: keep each so many-th run and compute the others again; -1: the square root */
};
/* Options of for_loop. */
struct for_options {
  std::int64_t max_count = 0;  /* how often the body runs at most; without it there is no gradient */
  std::int64_t keep_every = 0; /* as of scan */
};
/* Results of scan: what is carried after the last run, and the stacked slices. */
template <std::size_t N>
struct scan_results {
  std::array<tensor, N> carried;
  tensors stacked;
};

namespace detail {

template <std::size_t N>
std::array<tensor, N> array_of(const tensor (&some)[N]) {
  std::array<tensor, N> all;
  for (std::size_t i = 0; i < N; ++i) all[i] = some[i];
  return all;
}
template <std::size_t N>
std::array<tensor, N> array_of(tensors all) {
  std::array<tensor, N> some;
  for (std::size_t i = 0; i < N; ++i) some[i] = take(all, i);
  return some;
}

template <std::size_t N>
scan_results<N> scan(const function& f, std::span<const tensor> carried, std::span<const tensor> scanned,
                     const scan_options& options) {
  weft_scan_options o{};
  o.struct_size = sizeof o;
  o.length = options.length;
  o.unroll = options.unroll;
  o.reverse = options.reverse ? 1 : 0;
  o.keep_every = options.keep_every;
  const tensor_refs first(carried), slices(scanned);
  detail::elements<weft_tensor*> out(must(f.try_results()).size());
  std::size_t count = 0;
  weft_context* const context = recording(inner(first.context_handle(), slices.context_handle()));
  weft_error* raw = weft_scan(context, f.get(), first.data(), first.size(), slices.data(), slices.size(), &o,
                              out.data(), out.size(), &count);
  tensors all = must(made_tensors(raw, context, out.data(), out.size()));
  scan_results<N> results;
  for (std::size_t i = 0; i < N; ++i) results.carried[i] = take(all, i);
  for (std::size_t i = N; i < all.size(); ++i) results.stacked.push_back(std::move(all[i]));
  return results;
}

}  // namespace detail

/* Runs the body on each slice of the scanned tensors along their first axis: weft::scan(cell, {h, c}, {xs}). The
 * body takes what is carried and one slice of each, and returns what is carried next, each of its type, then any
 * number of slices, which are stacked. Gradients of any order flow. JAX's scan. Errors are thrown: invalid_argument,
 * … Since 1.2. */
template <class F, std::size_t N, std::size_t M>
scan_results<N> scan(F&& body, const tensor (&carried)[N], const tensor (&scanned)[M],
                     const scan_options& options = {}) {
  std::array<tensor_type, N + M> types;
  for (std::size_t i = 0; i < N; ++i) types[i] = carried[i].type();
  for (std::size_t i = 0; i < M; ++i) {
    types[N + i] = scanned[i].type();
    const shape& whole = types[N + i].shape;  // without its first axis; the library refuses a scalar
    types[N + i].shape = shape(std::span(whole.begin() + (whole.empty() ? 0 : 1), whole.end()));
  }
  function f = detail::must(
      detail::function_of<N + M>(carried[0].context_handle(), std::span<const tensor_type, N + M>(types), body));
  return detail::scan<N>(f, carried, scanned, options);
}
/* The same with nothing scanned: weft::scan(cell, {h}, {.length = 8}). Since 1.2. */
template <class F, std::size_t N>
scan_results<N> scan(F&& body, const tensor (&carried)[N], const scan_options& options) {
  std::array<tensor_type, N> types;
  for (std::size_t i = 0; i < N; ++i) types[i] = carried[i].type();
  function f =
      detail::must(detail::function_of<N>(carried[0].context_handle(), std::span<const tensor_type, N>(types), body));
  return detail::scan<N>(f, carried, {}, options);
}

/* Runs the body on what is carried as often as the condition holds, which never leaves the device: auto [x, n] =
 * weft::while_loop(condition, body, {x0, n0}). The condition gives one bool scalar, the body what is carried next.
 * No reverse-mode gradients. JAX's while_loop. Since 1.2. */
template <class Condition, class Body, std::size_t N>
std::array<tensor, N> while_loop(Condition&& condition, Body&& body, const tensor (&carried)[N]) {
  const auto inputs = detail::array_of(carried);
  const function test = detail::traced(condition, inputs), next = detail::traced(body, inputs);
  const tensor_refs refs(inputs);
  std::array<weft_tensor*, N> out{};
  weft_context* const context = detail::recording(refs.context_handle());
  weft_error* raw = weft_while(context, test.get(), next.get(), refs.data(), refs.size(), out.data());
  return detail::array_of<N>(detail::must(detail::made_tensors(raw, context, out.data(), out.size())));
}

/* Runs the body `count` times, an i32 scalar: body(i, carried…) gives what is carried next. Gradients need
 * options.max_count. JAX's fori_loop from 0. Since 1.2. */
template <class Body, std::size_t N>
std::array<tensor, N> for_loop(const tensor& count, Body&& body, const tensor (&carried)[N],
                               const for_options& options = {}) {
  std::array<tensor_type, N + 1> types;
  types[0] = {i32, {}};
  for (std::size_t i = 0; i < N; ++i) types[i + 1] = carried[i].type();
  const function f = detail::must(
      detail::function_of<N + 1>(carried[0].context_handle(), std::span<const tensor_type, N + 1>(types), body));
  weft_for_options o{};
  o.struct_size = sizeof o;
  o.max_count = options.max_count;
  o.keep_every = options.keep_every;
  const tensor_refs refs(carried, N);
  std::array<weft_tensor*, N> out{};
  weft_context* const context = detail::recording(refs.context_handle());
  weft_error* raw = weft_for(context, count.get(), f.get(), refs.data(), refs.size(), &o, out.data());
  return detail::array_of<N>(detail::must(detail::made_tensors(raw, context, out.data(), out.size())));
}
template <class Body, std::size_t N>
std::array<tensor, N> for_loop(std::int32_t count, Body&& body, const tensor (&carried)[N],
                               const for_options& options = {}) {
  weft_tensor* out = nullptr;
  weft_context* const context = carried[0].context_handle();
  weft_error* raw = weft_tensor_from_i64(context, WEFT_I32, count, &out);
  return for_loop(detail::must(detail::made(raw, context, out)), std::forward<Body>(body), carried, options);
}

/* Gives the result of one of two lambdas at x: of the first if pred, a bool scalar, holds. Only one runs. Both give
 * tensors of the same types; returns what the first returns. Gradients flow to x and to what the lambdas capture.
 * JAX's cond. Since 1.2. */
template <class Then, class Else, class... X>
  requires(std::convertible_to<const X&, tensor> && ...)
auto cond(const tensor& pred, Then&& then, Else&& otherwise, const X&... x) {
  const std::array<tensor, sizeof...(X)> inputs{tensor(x)...};
  weft_context* const context = detail::recording(detail::context_of(pred, tensor(x)...));
  const function yes = detail::traced(then, inputs, context), no = detail::traced(otherwise, inputs, context);
  const tensor_refs refs(inputs);
  detail::elements<weft_tensor*> out(detail::must(yes.try_results()).size());
  std::size_t count = 0;
  weft_error* raw =
      weft_if(context, pred.get(), yes.get(), no.get(), refs.data(), refs.size(), out.data(), out.size(), &count);
  return detail::mirrored<detail::traced_t<Then, sizeof...(X)>>(
      detail::must(detail::made_tensors(raw, context, out.data(), out.size())));
}

[[nodiscard]] inline result<tensors> try_switch_case(const tensor& index, std::span<const function> branches,
                                                     const tensor_refs& inputs) {
  detail::elements<weft_function*> all;
  for (const function& branch : branches) all.push(branch.get());
  std::size_t count = 0;
  if (!branches.empty()) {
    if (weft_error* raw = weft_function_results(branches[0].get(), nullptr, 0, &count)) return result<tensors>(raw);
  }
  detail::elements<weft_tensor*> out(count);
  weft_context* const context = detail::context_of(index, inputs);
  weft_error* raw = weft_case(context, index.get(), all.data(), all.size(), inputs.data(), inputs.size(), out.data(),
                              out.size(), &count);
  return detail::made_tensors(raw, context, out.data(), out.size());
}
/* The results at the inputs of the function that index chooses, an i32 scalar; the last one if there is none of that
 * number. Since 1.2. */
inline tensors switch_case(const tensor& index, std::span<const function> branches, const tensor_refs& inputs) {
  return detail::must(try_switch_case(index, branches, inputs));
}

}  // namespace throwing or returning
}  // namespace weft

#endif  // LIBWEFT_CONTROL_HPP
