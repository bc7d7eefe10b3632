/* Contexts, scopes, devices and events of libweft.hpp, and how tensors come from host memory. */
#ifndef LIBWEFT_CONTEXT_HPP
#define LIBWEFT_CONTEXT_HPP

#include <source_location>

#include "settings.hpp"
#include "tensor.hpp"

namespace weft {
#if defined(__cpp_exceptions)
inline namespace throwing {
#else
inline namespace returning {
#endif

/* How grave a log record is. Since 1.2. */
enum class log_level : std::int32_t {
  debug = WEFT_LOG_DEBUG,
  info = WEFT_LOG_INFO,
  warning = WEFT_LOG_WARNING,
  error = WEFT_LOG_ERROR,
  off = WEFT_LOG_OFF
};
/* The spellings of a program: Weft's own text, which parses back, StableHLO, and what else weft_text_format says. Since 1.2. */
enum class text_format : std::int32_t {
  ir = WEFT_TEXT_IR,
  stablehlo = WEFT_TEXT_STABLEHLO,
  dot = WEFT_TEXT_DOT,
  optimised = WEFT_TEXT_OPTIMISED,
  plan = WEFT_TEXT_PLAN,
  loops = WEFT_TEXT_LOOPS,
  llvm = WEFT_TEXT_LLVM,
  assembly = WEFT_TEXT_ASSEMBLY
};
/* The formats of what is counted; xla is PyTorch/XLA's report. Since 1.2. */
enum class metrics_format : std::int32_t {
  text = WEFT_METRICS_TEXT,
  json = WEFT_METRICS_JSON,
  xla = WEFT_METRICS_XLA,
  xla_2019 = WEFT_METRICS_XLA_2019,
  openmetrics = WEFT_METRICS_OPENMETRICS
};

/* Memory of one device in bytes; a limit of 0 is none. Since 1.2. */
struct memory_stats {
  std::uint64_t in_use = 0;
  std::uint64_t peak = 0;
  std::uint64_t limit = 0;
};

/* One device of a context; it lives as long as its context. Any thread. Since 1.2. */
class device : public detail::handle<weft_device, weft_device_retain, weft_device_release> {
 public:
  device() noexcept = default;
  /* Takes over a C device with its reference; ctx is the context that it belongs to, borrowed. Since 1.2. */
  device(weft_context* ctx, weft_device* raw) noexcept : handle(raw), context_(ctx) {}
  [[nodiscard]] weft_context* context_handle() const noexcept { return context_; }

  [[nodiscard]] result<std::string> try_name() const { return text(weft_device_name); }
  /* "cpu:0". Since 1.2. */
  [[nodiscard]] std::string name() const { return detail::must(try_name()); }
  [[nodiscard]] result<std::string> try_kind() const { return text(weft_device_kind); }
  /* Its kind: "x86-64 avx512". Since 1.2. */
  [[nodiscard]] std::string kind() const { return detail::must(try_kind()); }
  [[nodiscard]] result<memory_stats> try_memory() const {
    weft_memory_stats found{};
    found.struct_size = sizeof found;
    if (weft_error* raw = weft_device_memory(get(), &found)) return result<memory_stats>(raw);
    return memory_stats{found.bytes_in_use, found.peak_bytes, found.bytes_limit};
  }
  /* Its memory. Since 1.2. */
  [[nodiscard]] memory_stats memory() const { return detail::must(try_memory()); }
  [[nodiscard]] result<void> try_trim() const { return result<void>(weft_device_trim(get())); }
  /* Gives memory that nothing uses back to the system. Since 1.2. */
  void trim() const { detail::must(try_trim()); }

 private:
  template <class F>
  result<std::string> text(F of) const {
    const char* found = nullptr;
    std::size_t length = 0;
    if (weft_error* raw = of(get(), &found, &length)) return result<std::string>(raw);
    return std::string(found, length);
  }
  weft_context* context_ = nullptr;
};

/* Something that will have happened: a launch, a save, a compilation. Its failure sticks to it. Any thread. Since
 * 1.2. */
class event : public detail::handle<weft_event, weft_event_retain, weft_event_release> {
 public:
  event() noexcept = default;
  /* Takes over a C event with its reference; ctx is whose waits are cancelled, borrowed. Since 1.2. */
  event(weft_context* ctx, weft_event* raw) noexcept : handle(raw), context_(ctx) {}

  [[nodiscard]] result<bool> try_done() const {
    std::int32_t found = 0;
    if (weft_error* raw = weft_event_poll(get(), &found)) return result<bool>(raw);
    return found != 0;
  }
  /* True once it has happened, well or badly. Since 1.2. */
  [[nodiscard]] bool done() const { return detail::must(try_done()); }
  [[nodiscard]] result<void> try_wait() const { return result<void>(weft_event_wait(get(), WEFT_WAIT_FOREVER)); }
  /* Waits until it has happened; its failure is thrown. Since 1.2. */
  void wait() const { detail::must(try_wait()); }
  /* Waits no longer than a duration of <chrono>; deadline_exceeded if that passes first. Since 1.2. */
  template <class Duration>
    requires requires { typename Duration::period; }
  [[nodiscard]] result<void> try_wait_for(const Duration& longest) const {
    const double seconds = static_cast<double>(longest.count()) * static_cast<double>(Duration::period::num) /
                           static_cast<double>(Duration::period::den);
    const double nanoseconds = seconds * 1e9;
    const auto timeout =
        nanoseconds < 9e18 ? static_cast<std::int64_t>(nanoseconds > 0 ? nanoseconds : 0) : WEFT_WAIT_FOREVER;
    return result<void>(weft_event_wait(get(), timeout));
  }
  template <class Duration>
    requires requires { typename Duration::period; }
  void wait_for(const Duration& longest) const {
    detail::must(try_wait_for(longest));
  }
  /* Waits until it has happened or a std::stop_token asks to stop, which is looked at each 20 ms: then weft_cancel
   * ends what runs, and the failure is `cancelled`. The context is as good as before. Since 1.2. */
  template <class StopToken>
    requires requires(const StopToken& token) {
      { token.stop_requested() } -> std::convertible_to<bool>;
    }
  [[nodiscard]] result<void> try_wait(const StopToken& token) const {
    bool asked = false;
    for (;;) {
      result<void> waited(weft_event_wait(get(), 20'000'000));
      if (waited || waited.error().code() != code::deadline_exceeded) return waited;
      if (auto finished = try_done(); finished && *finished)
        return waited;  // its own outcome: a deadline of the launch
      if (token.stop_requested() && !asked) {
        weft_cancel(context_);
        asked = true;
      }
    }
  }
  template <class StopToken>
    requires requires(const StopToken& token) {
      { token.stop_requested() } -> std::convertible_to<bool>;
    }
  void wait(const StopToken& token) const {
    detail::must(try_wait(token));
  }
  [[nodiscard]] result<int> try_fd() const {
    std::int32_t fd = -1;
    if (weft_error* raw = weft_event_fd(get(), &fd)) return result<int>(raw);
    return static_cast<int>(fd);
  }
  /* A file descriptor that is readable once it has happened, for poll; it belongs to the event. Do not read from it.
   * Since 1.2. */
  [[nodiscard]] int fd() const { return detail::must(try_fd()); }

 private:
  weft_context* context_ = nullptr;
};

/* The state of a context's random stream. Since 1.2. */
struct random_state {
  std::uint64_t key = 0;
  std::uint64_t counter_low = 0;
  std::uint64_t counter_high = 0;

  friend bool operator==(const random_state&, const random_state&) noexcept = default;
};

/* Everything that is not process-wide: devices, what is recorded, random numbers, compiled programs, options. A copy
 * is one more reference; the last one waits for work, saves and the disk cache. Any thread, but for set_log. Since
 * 1.2. */
class context : public detail::handle<weft_context, weft_context_retain, weft_context_release> {
 public:
  /* A new context; options by name, those that are not given come from WEFT_* variables or are the defaults:
   *   weft::context ctx({.threads = 2, .cache_dir = "programs"});
   * Errors: invalid_argument names the option and what would be right. May block, where a plugin starts. Since 1.2. */
  context() : context(context_options{}) {}
  explicit context(const context_options& options) : context(detail::must(try_create(options))) {}
  [[nodiscard]] static result<context> try_create(const context_options& options = {}) {
    detail::setting_list settings;
    detail::settings_of(options, settings);
    weft_context_options o{};
    o.struct_size = sizeof o;
    o.settings = settings.raw.data();
    o.setting_count = settings.raw.size();
    weft_context* out = nullptr;
    if (weft_error* raw = weft_context_create(&o, &out)) return result<context>(raw);
    return adopt(out);
  }
  /* Takes over a C context with its reference. Since 1.2. */
  [[nodiscard]] static context adopt(weft_context* raw) noexcept { return context(raw, 0); }
  /* No context. */
  [[nodiscard]] static context none() noexcept { return context(nullptr, 0); }

  [[nodiscard]] result<void> try_sync() const { return result<void>(weft_sync(get(), nullptr, nullptr)); }
  /* The barrier: everything that is live and in no scope is computed, in one program. Waits for compiling, not for
   * running. Since 1.2. */
  void sync() const { detail::must(try_sync()); }
  [[nodiscard]] result<event> try_launch() const {
    weft_event* out = nullptr;
    if (weft_error* raw = weft_sync(get(), nullptr, &out)) return result<event>(raw);
    return event(get(), out);
  }
  /* sync, with an event that says when and how the work has ended. Since 1.2. */
  [[nodiscard]] event launch() const { return detail::must(try_launch()); }
  [[nodiscard]] result<event> try_eval(const tensor_refs& tensors) const {
    weft_event* out = nullptr;
    if (weft_error* raw = weft_eval(get(), tensors.data(), tensors.size(), &out)) return result<event>(raw);
    return event(get(), out);
  }
  /* Computes these tensors alone; other recorded work stays recorded. Since 1.2. */
  event eval(const tensor_refs& tensors) const { return detail::must(try_eval(tensors)); }
  [[nodiscard]] result<void> try_compile(const tensor_refs& tensors = {}) const {
    return result<void>(weft_compile(get(), nullptr, tensors.data(), tensors.size(), nullptr));
  }
  /* Makes the program that eval of these tensors, or without any the next sync, would run, and runs nothing. Since
   * 1.2. */
  void compile(const tensor_refs& tensors = {}) const { detail::must(try_compile(tensors)); }
  /* Asks waits to give up and launches to end: they are `cancelled`. May be called by a signal handler. Since 1.2. */
  void cancel() const noexcept { weft_cancel(get()); }

  /* One step of a program: what f records belongs to a scope, what it returns (tensors, alone or in a tuple, array,
   * vector) is kept, and then comes the barrier. */
  template <class F>
  auto step(F&& f) const -> std::invoke_result_t<F>;

  [[nodiscard]] result<std::string> try_option(std::string_view name) const {
    weft_blob* out = nullptr;
    weft_error* raw = weft_context_option(get(), name.data(), name.size(), &out);
    return detail::text_of(raw, out);
  }
  /* The effective value of an option as text. Errors: not_found. Since 1.2. */
  [[nodiscard]] std::string option(std::string_view name) const { return detail::must(try_option(name)); }
  [[nodiscard]] result<std::vector<device>> try_devices() const {
    std::size_t count = 0;
    if (weft_error* raw = weft_device_count(get(), &count)) return result<std::vector<device>>(raw);
    std::vector<device> all;
    for (std::size_t i = 0; i < count; ++i) {
      weft_device* out = nullptr;
      if (weft_error* raw = weft_device_at(get(), i, &out)) return result<std::vector<device>>(raw);
      all.emplace_back(get(), out);
    }
    return all;
  }
  /* All devices; the first is the default. Since 1.2. */
  [[nodiscard]] std::vector<device> devices() const { return detail::must(try_devices()); }
  [[nodiscard]] result<device> try_device_named(std::string_view name) const {
    weft_device* out = nullptr;
    if (weft_error* raw = weft_device_by_name(get(), name.data(), name.size(), &out)) return result<device>(raw);
    return device(get(), out);
  }
  /* A device by name, "cpu:0". Errors: not_found lists what there is. Since 1.2. */
  [[nodiscard]] device device_named(std::string_view name) const { return detail::must(try_device_named(name)); }

  [[nodiscard]] result<void> try_seed(std::uint64_t seed) const { return result<void>(weft_random_seed(get(), seed)); }
  /* Restarts the random stream. Equal seeds give equal bits on every device. Since 1.2. */
  void seed(std::uint64_t seed) const { detail::must(try_seed(seed)); }
  [[nodiscard]] result<random_state> try_random() const {
    random_state s;
    if (weft_error* raw = weft_random_get_state(get(), &s.key, &s.counter_low, &s.counter_high))
      return result<random_state>(raw);
    return s;
  }
  /* The state of the random stream, and going on from one. Since 1.2. */
  [[nodiscard]] random_state random() const { return detail::must(try_random()); }
  [[nodiscard]] result<void> try_set_random(const random_state& s) const {
    return result<void>(weft_random_set_state(get(), s.key, s.counter_low, s.counter_high));
  }
  void set_random(const random_state& s) const { detail::must(try_set_random(s)); }

  [[nodiscard]] result<std::string> try_metrics(metrics_format format = metrics_format::text) const {
    weft_blob* out = nullptr;
    weft_error* raw = weft_metrics_render(get(), static_cast<weft_metrics_format>(format), &out);
    return detail::text_of(raw, out);
  }
  /* Everything that is counted, as text. Since 1.2. */
  [[nodiscard]] std::string metrics(metrics_format format = metrics_format::text) const {
    return detail::must(try_metrics(format));
  }
  [[nodiscard]] result<std::int64_t> try_metric(std::string_view name) const {
    std::int64_t value = 0;
    if (weft_error* raw = weft_metric_get(get(), name.data(), name.size(), &value)) return result<std::int64_t>(raw);
    return value;
  }
  /* One counter by name: "programs_compiled". Errors: not_found. Since 1.2. */
  [[nodiscard]] std::int64_t metric(std::string_view name) const { return detail::must(try_metric(name)); }
  [[nodiscard]] result<std::string> try_program_text(const tensor_refs& tensors,
                                                     text_format format = text_format::ir) const {
    weft_blob* out = nullptr;
    weft_error* raw =
        weft_program_text(get(), tensors.data(), tensors.size(), static_cast<weft_text_format>(format), &out);
    return detail::text_of(raw, out);
  }
  /* The program that eval of these tensors, or without any the next sync, would run. Since 1.2. */
  [[nodiscard]] std::string program_text(const tensor_refs& tensors, text_format format = text_format::ir) const {
    return detail::must(try_program_text(tensors, format));
  }
  [[nodiscard]] result<void> try_settle(bool settled = true) const {
    return result<void>(weft_compiles_settled(get(), settled ? 1 : 0));
  }
  /* From here on nothing new is compiled: what would have to be is failed_precondition and says why. false lifts it.
   * Since 1.2. */
  void settle(bool settled = true) const { detail::must(try_settle(settled)); }

  /* All that this thread records from here on has this line as its position in errors and reports, until the next mark.
   * Since 1.2. */
  void mark(const std::source_location& where = std::source_location::current()) const {
    detail::must(result<void>(
        weft_position_mark(get(), where.file_name(), WEFT_STRLEN, static_cast<std::int32_t>(where.line()))));
  }
  /* f(level, text) gets log records of this level and above, on any thread, without a lock of Weft's; what it throws
   * is dropped. It lives until the next set_log or the context's end. One thread at a time. Since 1.2. */
  template <class F>
    requires std::invocable<F&, log_level, std::string_view>
  void set_log(log_level least, F f) const {
    using Function = std::remove_cvref_t<F>;
    detail::must(result<void>(weft_context_set_log(get(), static_cast<weft_log_level>(least), log_record<Function>,
                                                   new Function(std::move(f)),
                                                   [](void* user) noexcept { delete static_cast<Function*>(user); })));
  }

 private:
  context(weft_context* raw, int) noexcept : handle(raw) {}
  template <class F>
  static void log_record(void* user, weft_log_level level, const char* text, std::size_t length) {
#if defined(__cpp_exceptions)
    try {
#endif
      (*static_cast<F*>(user))(static_cast<log_level>(level), std::string_view(text, length));
#if defined(__cpp_exceptions)
    } catch (...) {  // a record is lost and nothing else
    }
#endif
  }
};

/* Owns what this thread records in a context while it is open. A barrier does not compute what a scope owns, so a
 * step is one program however long intermediates live; what is to be read later is kept (weft::tensor::keep). Scopes
 * of a thread end in the reverse order; a scope begins and ends on one thread. Reading what was not kept after the
 * barrier is failed_precondition. Since 1.2. */
class scope {
 public:
  explicit scope(const context& ctx) : before_(detail::current_scope) {
    weft_scope* out = nullptr;
    detail::must(result<void>(weft_scope_begin(ctx.get(), &out)));
    raw_ = out;
    if (out != nullptr) detail::current_scope = {out, ctx.get()};
  }
  scope(const scope&) = delete;
  scope& operator=(const scope&) = delete;
  /* Ends the scope; what it could say is lost, so a program without exceptions calls end or try_end. */
  ~scope() { weft_error_release(close()); }

  [[nodiscard]] result<void> try_end() { return result<void>(close()); }
  /* Ends the scope before its block does and gives its first failure: without exceptions, that of its operations.
   * Since 1.2. */
  void end() { detail::must(try_end()); }
  [[nodiscard]] result<void> try_check() const {
    return result<void>(raw_ != nullptr ? weft_scope_check(raw_) : nullptr);
  }

 private:
  weft_error* close() noexcept {
    if (raw_ == nullptr) return nullptr;
    detail::current_scope = before_;
    return weft_scope_end(std::exchange(raw_, nullptr));
  }
  weft_scope* raw_ = nullptr;
  detail::open_scope before_;
};

template <number N>
result<tensor> tensor::try_make(const context& ctx, N value, weft::dtype type) {
  weft_tensor* out = nullptr;
  weft_error* raw = nullptr;
  if constexpr (std::floating_point<N>) {
    raw = weft_tensor_from_f64(ctx.get(), detail::raw(type), static_cast<double>(value), &out);
  } else if constexpr (std::unsigned_integral<N>) {
    raw = weft_tensor_from_u64(ctx.get(), detail::raw(type), static_cast<std::uint64_t>(value), &out);
  } else {
    raw = weft_tensor_from_i64(ctx.get(), detail::raw(type), static_cast<std::int64_t>(value), &out);
  }
  return detail::made(raw, ctx.get(), out);
}

inline result<tensor> tensor::try_from_bytes(const context& ctx, weft::dtype type, const weft::shape& sizes,
                                             const void* data, std::size_t size, weft_device* device) {
  weft_tensor* out = nullptr;
  weft_error* raw =
      weft_tensor_from_host(ctx.get(), device, detail::raw(type), sizes.data(), sizes.size(), data, size, &out);
  return detail::made(raw, ctx.get(), out);
}

template <element_range R>
result<tensor> tensor::try_make(const context& ctx, R&& values, const weft::shape& sizes) {
  const detail::dense<std::remove_reference_t<R>> elements(values);
  using T = typename detail::dense<std::remove_reference_t<R>>::value;
  return try_from_bytes(ctx, dtype_of<T>::value, sizes, elements.data, elements.count * sizeof(T));
}

template <element_range R>
result<tensor> tensor::try_make(const context& ctx, R&& values) {
  const detail::dense<std::remove_reference_t<R>> elements(values);
  using T = typename detail::dense<std::remove_reference_t<R>>::value;
  return try_from_bytes(ctx, dtype_of<T>::value, weft::shape(elements.count), elements.data,
                        elements.count * sizeof(T));
}

template <dense_mdspan M>
result<tensor> tensor::try_make(const context& ctx, const M& values) {
  using T = std::remove_cv_t<typename M::element_type>;
  std::array<std::int64_t, M::rank() + 1> sizes{};
  std::size_t count = 1;
  bool row_major = values.is_exhaustive();
  for (std::size_t i = M::rank(); i-- > 0;) {
    sizes[i] = static_cast<std::int64_t>(values.extent(i));
    row_major = row_major && (sizes[i] <= 1 || static_cast<std::size_t>(values.stride(i)) == count);
    count *= static_cast<std::size_t>(sizes[i]);
  }
  if (!row_major) return error(code::invalid_argument, "the mdspan's elements do not lie dense and row-major");
  return try_from_bytes(ctx, dtype_of<T>::value, weft::shape(std::span(sizes.data(), M::rank())), values.data_handle(),
                        count * sizeof(T));
}

inline result<tensor> tensor::try_to_device(const device& to) const {
  weft_tensor* out = nullptr;
  weft_error* raw = weft_tensor_copy_to(get(), to.get(), &out);
  return detail::made(raw, to ? to.context_handle() : context_, out);
}

}  // namespace throwing or returning
}  // namespace weft

#endif  // LIBWEFT_CONTEXT_HPP
