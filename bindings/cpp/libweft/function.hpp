/* Functions of libweft.hpp: programs as values, made of lambdas, and grad, vjp, jvp and vmap of them. */
#ifndef LIBWEFT_FUNCTION_HPP
#define LIBWEFT_FUNCTION_HPP

#include "operators.hpp"
#include "results.hpp"

namespace weft {
#if defined(__cpp_exceptions)
inline namespace throwing {
#else
inline namespace returning {
#endif

/* Values that gradients of a function made by weft::function::checkpoint keep from the run forwards. Since 1.2. */
enum class keep : std::int32_t { inputs = WEFT_KEEP_INPUTS, products = WEFT_KEEP_PRODUCTS };
/* Random numbers that the examples of vmap draw. Since 1.2. */
enum class randomness : std::int32_t {
  different = WEFT_RANDOMNESS_DIFFERENT,
  same = WEFT_RANDOMNESS_SAME,
  error = WEFT_RANDOMNESS_ERROR
};
/* Stands in the place of an axis of vmap and says that all examples share the tensor. Since 1.2. */
inline constexpr std::int64_t not_mapped = WEFT_NOT_MAPPED;

/* Options of grad, vjp and jvp of a function. */
struct derivative_options {
  ints wrt = {};       /* numbers of inputs; not given: all that are floats or complex */
  bool values = false; /* the function's own results stand in front of the derivatives */
};
/* Options of vmap. */
struct vmap_options {
  ints in_axes = {};  /* of each input, where its examples lie, or weft::not_mapped; not given: all 0 */
  ints out_axes = {}; /* the same of each result */
  weft::randomness randomness = weft::randomness::different;
};
/* Work and memory that a compiled function asks of the machine for one run; docs/functions.md. */
struct program_stats {
  double flops = 0, transcendentals = 0;
  std::uint64_t argument_bytes = 0, result_bytes = 0, temporary_bytes = 0, code_bytes = 0, kernels = 0,
                bytes_accessed = 0;
};

/* A traced, typed program: inputs in, results out. Immutable; a copy is one more reference. It is called any number
 * of times, in programs and in bodies of others, differentiated, mapped, saved. Tensors that its body used from
 * outside are its captures, with the values of then. Any thread. Since 1.2. */
class function : public detail::handle<weft_function, weft_function_retain, weft_function_release> {
 public:
  function() noexcept = default;
  /* Takes over a C function with its reference; ctx is the context that it belongs to, borrowed. Since 1.2. */
  [[nodiscard]] static function adopt(weft_context* ctx, weft_function* raw) noexcept { return function(ctx, raw); }

  /* Records f once on inputs of these types: weft::function(ctx, {{weft::f32, {3}}, {weft::f32}}, [](weft::tensor x,
   * weft::tensor w) { return x * w; }). f takes the tensors, or the body's context and the tensors, for operations
   * without operands; it returns a tensor, or a tuple, pair, array or vector of them. What f throws comes out.
   * Reading in f is failed_precondition. */
  template <std::size_t N, class F>
  function(const context& ctx, const tensor_type (&inputs)[N], F&& f, std::string_view name = "function")
      : function(detail::must(try_trace(ctx, inputs, std::forward<F>(f), name))) {}
  template <std::size_t N, class F>
  [[nodiscard]] static result<function> try_trace(const context& ctx, const tensor_type (&inputs)[N], F&& f,
                                                  std::string_view name = "function") {
    weft_function* out = nullptr;
    if (weft_error* raw = detail::record<N>(ctx.get(), std::span<const tensor_type, N>(inputs), f, name, &out))
      return result<function>(raw);
    return function(ctx.get(), out);
  }

  [[nodiscard]] result<tensors> try_call(const tensor_refs& inputs) const;
  /* Records a call at these inputs; others for captures may follow. Gradients flow through it. Since 1.2. */
  [[nodiscard]] tensors call(const tensor_refs& inputs) const { return detail::must(try_call(inputs)); }
  template <class... X>
    requires(std::convertible_to<const X&, tensor> && ...)
  [[nodiscard]] tensors operator()(const X&... x) const {
    return call(std::initializer_list<tensor>{x...});
  }
  [[nodiscard]] result<tensors> try_run(const tensor_refs& inputs, const ints& donated = {}) const;
  /* Launches the function as a program of its own, which compile may have made; returns without waiting. Results
   * have no past. The inputs whose numbers `donated` has are gone then, and their memory may be taken over. Since
   * 1.2. */
  tensors run(const tensor_refs& inputs, const ints& donated = {}) const {
    return detail::must(try_run(inputs, donated));
  }
  [[nodiscard]] result<void> try_compile(const ints& donated = {}) const {
    return result<void>(
        weft_function_compile(context_, get(), nullptr, nullptr, 0, donated.data(), donated.size(), nullptr));
  }
  /* Makes the program that run launches, in memory and on disk; waits for it. Since 1.2. */
  void compile(const ints& donated = {}) const { detail::must(try_compile(donated)); }
  [[nodiscard]] result<program_stats> try_stats() const;
  /* Work and memory of a run; compiles if need be. Since 1.2. */
  [[nodiscard]] program_stats stats() const { return detail::must(try_stats()); }

  [[nodiscard]] result<function> try_grad(const derivative_options& o = {}) const {
    return derived<weft_function_grad>(o);
  }
  /* The gradient of the first result, a float of one element: a function of the same inputs. Since 1.2. */
  [[nodiscard]] function grad(const derivative_options& o = {}) const { return detail::must(try_grad(o)); }
  [[nodiscard]] result<function> try_vjp(const derivative_options& o = {}) const {
    return derived<weft_function_vjp>(o);
  }
  /* Vector-Jacobian products: a function of the inputs, then of a cotangent for each float result. Since 1.2. */
  [[nodiscard]] function vjp(const derivative_options& o = {}) const { return detail::must(try_vjp(o)); }
  [[nodiscard]] result<function> try_jvp(const derivative_options& o = {}) const {
    return derived<weft_function_jvp>(o);
  }
  /* Jacobian-vector products: a function of the inputs, then of a tangent for each of wrt. Since 1.2. */
  [[nodiscard]] function jvp(const derivative_options& o = {}) const { return detail::must(try_jvp(o)); }
  [[nodiscard]] result<function> try_vmap(std::int64_t size, const vmap_options& o = {}) const;
  /* The function of `size` examples: its results for each of them. Since 1.2. */
  [[nodiscard]] function vmap(std::int64_t size, const vmap_options& o = {}) const {
    return detail::must(try_vmap(size, o));
  }
  [[nodiscard]] result<function> try_checkpoint(weft::keep what = weft::keep::inputs) const {
    weft_function* out = nullptr;
    weft_error* raw = weft_function_checkpoint(context_, get(), static_cast<weft_keep>(what), &out);
    return wrapped(raw, out);
  }
  /* The same function, whose gradient computes again what it would have kept. Since 1.2. */
  [[nodiscard]] function checkpoint(weft::keep what = weft::keep::inputs) const {
    return detail::must(try_checkpoint(what));
  }
  [[nodiscard]] result<function> try_custom_gradient(const function& forward, const function& backward) const {
    weft_function* out = nullptr;
    weft_error* raw = weft_function_custom_gradient(context_, get(), forward.get(), backward.get(), &out);
    return wrapped(raw, out);
  }
  /* A function whose gradient two others say: forward gives the results and residuals, backward takes residuals and
   * cotangents. */
  [[nodiscard]] function custom_gradient(const function& forward, const function& backward) const {
    return detail::must(try_custom_gradient(forward, backward));
  }

  [[nodiscard]] result<void> try_save(std::string_view path) const {
    return result<void>(weft_function_save(get(), path.data(), path.size()));
  }
  /* Writes the function with its literals into a file, which appears whole or not at all; captures become inputs.
   * Blocks. */
  void save(std::string_view path) const { detail::must(try_save(path)); }
  [[nodiscard]] static result<function> try_load(const context& ctx, std::string_view path) {
    weft_function* out = nullptr;
    weft_error* raw = weft_function_load(ctx.get(), path.data(), path.size(), &out);
    return function(ctx.get(), nullptr).wrapped(raw, out);
  }
  /* The function that save wrote. Errors: not_found, data_loss, … Since 1.2. */
  [[nodiscard]] static function load(const context& ctx, std::string_view path) {
    return detail::must(try_load(ctx, path));
  }
  [[nodiscard]] static result<function> try_from_stablehlo(const context& ctx, std::string_view module) {
    weft_function* out = nullptr;
    weft_error* raw = weft_function_from_stablehlo(ctx.get(), module.data(), module.size(), &out);
    return function(ctx.get(), nullptr).wrapped(raw, out);
  }
  /* The function @main of a StableHLO module, as jax.jit(f).lower(…).as_text() gives it. Errors say line and column.
   * Since 1.2. */
  [[nodiscard]] static function from_stablehlo(const context& ctx, std::string_view module) {
    return detail::must(try_from_stablehlo(ctx, module));
  }
  [[nodiscard]] result<std::string> try_text(text_format format = text_format::ir) const {
    weft_blob* out = nullptr;
    weft_error* raw = weft_function_text(get(), static_cast<weft_text_format>(format), &out);
    return detail::text_of(raw, out);
  }
  /* The function as text: text_format::stablehlo for other compilers. Since 1.2. */
  [[nodiscard]] std::string text(text_format format = text_format::ir) const { return detail::must(try_text(format)); }
  [[nodiscard]] result<std::string> try_key() const {
    weft_blob* out = nullptr;
    weft_error* raw = weft_function_key(get(), &out);
    return detail::text_of(raw, out);
  }
  /* 32 hexadecimal digits that functions which compute the same have in common. Since 1.2. */
  [[nodiscard]] std::string key() const { return detail::must(try_key()); }
  [[nodiscard]] result<std::string> try_name() const {
    weft_blob* out = nullptr;
    weft_error* raw = weft_function_name(get(), &out);
    return detail::text_of(raw, out);
  }
  [[nodiscard]] std::string name() const { return detail::must(try_name()); }
  [[nodiscard]] result<std::vector<tensor_type>> try_inputs() const { return types(weft_function_inputs); }
  /* Dtypes and shapes of the inputs, and of the results. Since 1.2. */
  [[nodiscard]] std::vector<tensor_type> inputs() const { return detail::must(try_inputs()); }
  [[nodiscard]] result<std::vector<tensor_type>> try_results() const { return types(weft_function_results); }
  [[nodiscard]] std::vector<tensor_type> results() const { return detail::must(try_results()); }
  [[nodiscard]] result<tensors> try_captures() const;
  /* The tensors around it that the body used, with the values of then. Since 1.2. */
  [[nodiscard]] tensors captures() const { return detail::must(try_captures()); }
  [[nodiscard]] weft_context* context_handle() const noexcept { return context_; }

 private:
  function(weft_context* ctx, weft_function* raw) noexcept : handle(raw), context_(ctx) {}
  [[nodiscard]] result<function> wrapped(weft_error* raw, weft_function* out) const {
    if (raw != nullptr) return result<function>(raw);
    return function(context_, out);
  }
  template <auto Derive>
  [[nodiscard]] result<function> derived(const derivative_options& options) const {
    weft_derivative_options o{};
    o.struct_size = sizeof o;
    o.values = options.values ? 1 : 0;
    weft_function* out = nullptr;
    weft_error* raw =
        Derive(context_, get(), options.wrt.given() ? options.wrt.data() : nullptr, options.wrt.size(), &o, &out);
    return wrapped(raw, out);
  }
  template <class F>
  [[nodiscard]] result<std::vector<tensor_type>> types(F of) const;
  [[nodiscard]] result<std::size_t> result_count() const {
    std::size_t count = 0;
    if (weft_error* raw = weft_function_results(get(), nullptr, 0, &count)) return result<std::size_t>(raw);
    return count;
  }
  weft_context* context_ = nullptr;
};

namespace detail {

/* The function of a lambda. */
template <std::size_t N, class F>
result<function> function_of(weft_context* ctx, std::span<const tensor_type, N> inputs, F&& f,
                             std::string_view name = "function") {
  ctx = recording(ctx);
  weft_function* out = nullptr;
  if (weft_error* raw = record<N>(ctx, inputs, f, name, &out)) return result<function>(raw);
  return function::adopt(ctx, out);
}
template <std::size_t N>
std::array<tensor_type, N> types_of(const std::array<tensor, N>& x) {
  std::array<tensor_type, N> types;
  for (std::size_t i = 0; i < N; ++i) types[i] = x[i].type();
  return types;
}
/* A lambda's function at tensors of the call. */
template <class F, std::size_t N>
function traced(F&& f, const std::array<tensor, N>& x, weft_context* ctx = nullptr) {
  const auto types = types_of(x);
  if constexpr (N > 0) ctx = ctx != nullptr ? ctx : x[0].context_handle();
  return must(function_of<N>(ctx, std::span<const tensor_type, N>(types), f));
}

/* The objects that weft::grad and weft::value_and_grad give: f is recorded anew in each call, so its captures have
 * their values of now. */
template <bool Values, class F, std::size_t... Wrt>
class gradient_of {
 public:
  explicit gradient_of(F f) : f_(std::move(f)) {}
  template <class... X>
    requires(std::convertible_to<const X&, tensor> && ... && (sizeof...(X) > 0))
  auto operator()(const X&... x) const {
    static_assert(((Wrt < sizeof...(X)) && ...), "an argument to differentiate by is past the last one");
    const std::array<tensor, sizeof...(X)> inputs{tensor(x)...};
    tensors all = traced(f_, inputs).grad({.wrt = {Wrt...}, .values = Values}).call(inputs);
    if constexpr (Values) {
      return std::pair(take(all, 0), gradients(all, all.size() < sizeof...(Wrt) ? 0 : all.size() - sizeof...(Wrt)));
    } else {
      return gradients(all, 0);
    }
  }

 private:
  static auto gradients(tensors& all, std::size_t at) {
    if constexpr (sizeof...(Wrt) == 1) {
      return take(all, at);
    } else {
      std::array<tensor, sizeof...(Wrt)> some;
      for (std::size_t i = 0; i < some.size(); ++i) some[i] = take(all, at + i);
      return some;
    }
  }
  F f_;
};

/* The object that weft::vmap gives. */
template <class F>
class mapped {
 public:
  mapped(F f, vmap_options options) : f_(std::move(f)), options_(std::move(options)) {}
  template <class... X>
    requires(std::convertible_to<const X&, tensor> && ... && (sizeof...(X) > 0))
  auto operator()(const X&... x) const {
    constexpr std::size_t N = sizeof...(X);
    const std::array<tensor, N> inputs{tensor(x)...};
    std::array<tensor_type, N> one = types_of(inputs);
    std::int64_t size = -1;
    for (std::size_t i = 0; i < N; ++i) {
      std::int64_t axis =
          options_.in_axes.given() ? (i < options_.in_axes.size() ? options_.in_axes[i] : not_mapped) : 0;
      if (axis == not_mapped) continue;
      const auto rank = static_cast<std::int64_t>(one[i].shape.size());
      axis += axis < 0 ? rank : 0;
      if (axis < 0 || axis >= rank) continue;  // the library says what is wrong
      std::vector<std::int64_t> rest;
      for (std::int64_t d = 0; d < rank; ++d) {
        if (d != axis) rest.push_back(one[i].shape[static_cast<std::size_t>(d)]);
      }
      size = size < 0 ? one[i].shape[static_cast<std::size_t>(axis)] : size;
      one[i].shape = shape(rest);
    }
    function f = must(function_of<N>(inputs[0].context_handle(), std::span<const tensor_type, N>(one), f_));
    return mirrored<traced_t<const F&, N>>(f.vmap(size, options_).call(inputs));
  }

 private:
  F f_;
  vmap_options options_;
};

}  // namespace detail

/* The gradient of what f computes, a float of one element, by its first argument: JAX's grad. weft::grad<0, 1>(f)
 * gives an array of those by several. What comes out is called with tensors, and may be differentiated and mapped
 * itself. Errors are thrown where it is called. Since 1.2. */
template <std::size_t... Wrt, class F>
  requires(!std::convertible_to<F, tensor>)
[[nodiscard]] auto grad(F f) {
  if constexpr (sizeof...(Wrt) == 0) {
    return detail::gradient_of<false, F, 0>(std::move(f));
  } else {
    return detail::gradient_of<false, F, Wrt...>(std::move(f));
  }
}
/* The same with the value in front: auto [loss, gradient] = weft::value_and_grad(f)(w, x). Since 1.2. */
template <std::size_t... Wrt, class F>
[[nodiscard]] auto value_and_grad(F f) {
  if constexpr (sizeof...(Wrt) == 0) {
    return detail::gradient_of<true, F, 0>(std::move(f));
  } else {
    return detail::gradient_of<true, F, Wrt...>(std::move(f));
  }
}
/* f of many examples, which lie along the axes that options say: JAX's vmap. Returns what f returns. Since 1.2. */
template <class F>
[[nodiscard]] auto vmap(F f, vmap_options options = {}) {
  return detail::mapped<F>(std::move(f), std::move(options));
}

/* The results of f at x, and a function that takes cotangents of its results to those of x (a weft::tensors): auto
 * [y, pull] = weft::vjp(f, x). Since 1.2. */
template <class F, class... X>
  requires(std::convertible_to<const X&, tensor> && ... && (sizeof...(X) > 0))
[[nodiscard]] auto vjp(F&& f, const X&... x) {
  constexpr std::size_t N = sizeof...(X);
  const std::array<tensor, N> inputs{tensor(x)...};
  function traced = detail::traced(f, inputs);
  auto pull = [inputs, back = traced.vjp()](const auto&... cotangents) {
    return back.call(std::vector<tensor>([&] {
      std::vector<tensor> all(inputs.begin(), inputs.end());
      (all.push_back(cotangents), ...);
      return all;
    }()));
  };
  return std::pair(detail::mirrored<detail::traced_t<F, N>>(traced.call(inputs)), std::move(pull));
}
/* The results of f at x, and how they change along the tangents (a weft::tensors): weft::jvp(f, {x}, {dx}). Since
 * 1.2. */
template <class F, std::size_t N>
[[nodiscard]] auto jvp(F&& f, const tensor (&x)[N], const tensor (&tangents)[N]) {
  std::array<tensor, N> inputs;
  std::vector<tensor> all(x, x + N);
  for (std::size_t i = 0; i < N; ++i) inputs[i] = x[i];
  all.insert(all.end(), tangents, tangents + N);
  const function f_of = detail::traced(f, inputs);
  weft::tensors values = f_of.call(inputs);
  weft::tensors along = f_of.jvp().call(all);
  return std::pair(detail::mirrored<detail::traced_t<F, N>>(std::move(values)), std::move(along));
}

[[nodiscard]] inline result<tensors> try_grad(const tensor& y, const tensor_refs& xs, const tensor& cotangent = {}) {
  detail::elements<weft_tensor*> out(xs.size());
  weft_context* const context = detail::context_of(y, xs);
  weft_error* raw = weft_grad(context, y.get(), cotangent.get(), xs.data(), xs.size(), out.data());
  return detail::made_tensors(raw, context, out.data(), out.size());
}
/* Gradients of y, recorded before, by tensors that require gradients (requires_grad). y is a scalar, unless a
 * cotangent of its shape says what arrives at it. Braces give an array: auto [dw, db] = weft::grad(loss, {w, b}).
 * Since 1.2. */
[[nodiscard]] inline tensors grad(const tensor& y, const tensor_refs& xs, const tensor& cotangent = {}) {
  return detail::must(try_grad(y, xs, cotangent));
}
template <std::size_t N>
[[nodiscard]] std::array<tensor, N> grad(const tensor& y, const tensor (&xs)[N], const tensor& cotangent = {}) {
  tensors all = grad(y, tensor_refs(xs, N), cotangent);
  std::array<tensor, N> some;
  for (std::size_t i = 0; i < N; ++i) some[i] = detail::take(all, i);
  return some;
}

inline result<tensors> function::try_call(const tensor_refs& inputs) const {
  auto count = result_count();
  if (!count) return count.error();
  detail::elements<weft_tensor*> out(*count);
  weft_context* const context = detail::inner(inputs.context_handle(), context_);
  weft_error* raw = weft_function_call(context, get(), inputs.data(), inputs.size(), out.data(), out.size(), &*count);
  return detail::made_tensors(raw, context, out.data(), out.size());
}

inline result<tensors> function::try_run(const tensor_refs& inputs, const ints& donated) const {
  auto count = result_count();
  if (!count) return count.error();
  detail::elements<weft_tensor*> out(*count);
  weft_error* raw = weft_function_run(context_, get(), inputs.data(), inputs.size(), donated.data(), donated.size(),
                                      out.data(), out.size(), &*count);
  return detail::made_tensors(raw, context_, out.data(), out.size());
}

inline result<program_stats> function::try_stats() const {
  weft_program_stats s{};
  s.struct_size = sizeof s;
  if (weft_error* raw = weft_function_stats(context_, get(), nullptr, nullptr, 0, &s))
    return result<program_stats>(raw);
  return program_stats{s.flops,           s.transcendentals, s.argument_bytes, s.result_bytes,
                       s.temporary_bytes, s.code_bytes,      s.kernels,        s.bytes_accessed};
}

inline result<function> function::try_vmap(std::int64_t size, const vmap_options& options) const {
  weft_vmap_options o{};
  o.struct_size = sizeof o;
  o.randomness = static_cast<weft_randomness>(options.randomness);
  weft_function* out = nullptr;
  weft_error* raw = weft_function_vmap(
      context_, get(), size, options.in_axes.given() ? options.in_axes.data() : nullptr, options.in_axes.size(),
      options.out_axes.given() ? options.out_axes.data() : nullptr, options.out_axes.size(), &o, &out);
  return wrapped(raw, out);
}

template <class F>
result<std::vector<tensor_type>> function::types(F of) const {
  std::size_t count = 0;
  if (weft_error* raw = of(get(), nullptr, 0, &count)) return result<std::vector<tensor_type>>(raw);
  detail::elements<weft_tensor_info> infos(count);
  if (weft_error* raw = of(get(), infos.data(), count, &count)) return result<std::vector<tensor_type>>(raw);
  std::vector<tensor_type> all;
  for (std::size_t i = 0; i < count; ++i) all.push_back(detail::type_of(infos.data()[i]));
  return all;
}

inline result<tensors> function::try_captures() const {
  for (std::size_t room = 8;; room *= 2) {  // how many there are is said only where there is room for them
    const detail::elements<weft_tensor*> out(room);
    std::size_t count = 0;
    weft_error* raw = weft_function_captures(get(), out.data(), out.size(), &count);
    if (raw == nullptr || weft_error_code(raw) != WEFT_OUT_OF_RANGE)
      return detail::made_tensors(raw, context_, out.data(), count);
    weft_error_release(raw);
  }
}

}  // namespace throwing or returning
}  // namespace weft

#endif  // LIBWEFT_FUNCTION_HPP
